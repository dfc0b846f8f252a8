/* Does nothing that anybody could see. */
int main(void)
{
    return 0;
}
