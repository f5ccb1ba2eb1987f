# what: breaks the engines' rules one by one, and sees the simulations notice
#help
#help Usage: ./dev mutations [PART_OF_A_NAME]
#help
#help ./dev test takes a sample of those of channels; this runs them all, or those whose names have the part, for some ten minutes.
setup
cd "$root"
exec python3 core/stripe/tests/mutations.py "$root" "$@"
