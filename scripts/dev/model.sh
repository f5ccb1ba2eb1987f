# what: searches all instances of the models of flow control
#help
#help Usage: ./dev model
#help
#help As suite model of ./dev test, and the largest instances of channels besides, which take minutes.
setup
build gcc
exec "$root/build/gcc/model/flow_control_model" --all
