# what: builds the library, the tools and the tests
#help
#help Usage: ./dev build [gcc|clang|sanitize|release]...
#help
#help Builds into build/NAME; gcc if no name is given. sanitize is gcc with ASan and UBSan.
setup
for name in "${@:-gcc}"; do
    build "$name"
done
