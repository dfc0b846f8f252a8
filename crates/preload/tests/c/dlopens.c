/* Loads and unloads a library, again and again. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    for (int i = 0; i < 20; i++) {
        void *library = dlopen(argv[1], RTLD_NOW);
        int (*work)(void) = library ? dlsym(library, "work") : NULL;
        if (argc < 2 || !work || work() != 7 || dlclose(library))
            return 1;
        if (dlsym(RTLD_DEFAULT, "no such function") || !dlerror() || dlerror())
            return 2;
    }
    return 0;
}
