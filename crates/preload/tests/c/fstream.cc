// Streams of the C++ library: formatted and raw, small and large, in both directions, and with seeks.

#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

int main()
{
    {
        std::ofstream out("text");
        for (int i = 0; i < 100000; i++)
            out << "line " << i << ' ' << i * 0.5 << '\n';
    }
    {
        std::ofstream out("raw", std::ios::binary);
        std::vector<char> block(100000, 'x');
        for (int i = 0; i < 10; i++) {
            out.write(block.data(), block.size());
            out.put('\n');
        }
        out.seekp(5000);
        out.write("here", 4);
    }
    std::ifstream in("text");
    std::string line;
    long bytes = 0;
    while (std::getline(in, line))
        bytes += line.size() + 1;
    std::cout << bytes << '\n';
    std::fstream both("raw", std::ios::in | std::ios::out | std::ios::binary);
    both.seekg(4998);
    char six[7] = {};
    both.read(six, 6);
    both.seekp(0, std::ios::end);
    both << "end";
    both.seekg(-10, std::ios::end);
    std::getline(both, line);
    std::getline(both, line);
    std::cout << six << ' ' << line << '\n';
    std::ostringstream all;
    all << std::ifstream("text").rdbuf();
    std::cout << all.str().size() << std::endl;
    std::ofstream more("text", std::ios::app);
    more << "appended";
    return 0;
}
