# shellcheck shell=bash
# What all completions of copyrpc's programs have in common; manual/completion.sh. Each has a copy, since a shell loads one file for
# a program, and they may be installed apart.

# _copyrpc_values KIND: the values of a kind, one a line.
_copyrpc_values() {
    local entry
    case $1 in
    DEVICE)
        for entry in /sys/class/infiniband/*; do
            [ -e "$entry" ] && printf '%s\n' "${entry##*/}"
        done
        ;;
    CHECK) copyrpc-check --list 2>/dev/null | sed 's/ .*//' ;;
    SESSION) simnic ctl sessions 2>/dev/null | sed '1d; s/ .*//' ;;
    PID)
        for entry in /proc/[0-9]*; do
            printf '%s\n' "${entry##*/}"
        done
        ;;
    *'|'*) printf '%s\n' "${1//|/$'\n'}" ;;
    *)
        [ -z "${words[$1]-}" ] || printf '%s\n' "${words[$1]}" | tr ' ' '\n'
        ;;
    esac
}

# _copyrpc_value KIND PREFIX: offers the values of a kind for what is typed behind PREFIX of the current word.
_copyrpc_value() {
    local kind=$1 prefix=$2 typed value
    typed=${current#"$prefix"}
    if [ "$kind" = FILE ]; then
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$typed")
        return
    fi
    # A list with commas: what stands before the last one stays.
    if [ "$kind" != "${kind%,}" ] || [ -n "${several[$kind]-}" ]; then
        kind=${kind%,}
        case $typed in
        *,*)
            prefix=$prefix${typed%,*},
            typed=${typed##*,}
            ;;
        esac
    fi
    while read -r value; do
        case $value in
        "$typed"*) COMPREPLY+=("$prefix$value") ;;
        esac
    done < <(_copyrpc_values "$kind")
}

# Words as the program gets them: readline takes = and : for ends of words, and gives them as words of their own. Sets given[], of which the
# last is the current word.
_copyrpc_join_words() {
    local i word glue=
    given=()
    for ((i = 0; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if [[ ${#given[@]} -gt 1 && ($glue || $word =~ ^[=:]+$) ]]; then
            given[${#given[@]} - 1]+=$word
        else
            given+=("$word")
        fi
        [[ $word =~ ^[=:]+$ ]] && glue=1 || glue=
    done
}

# Leaves of each answer what readline replaces: what stands behind the last = or : of the current word.
_copyrpc_trim_answers() {
    local i kept=$current
    case $COMP_WORDBREAKS in
    *=*:* | *:*=*) kept=${kept%"${kept##*[=:]}"} ;;
    *=*) kept=${kept%"${kept##*=}"} ;;
    *:*) kept=${kept%"${kept##*:}"} ;;
    *) kept= ;;
    esac
    for ((i = 0; i < ${#COMPREPLY[@]}; i++)); do
        COMPREPLY[i]=${COMPREPLY[i]#"$kept"}
    done
}

# _copyrpc_complete LEVEL: fills COMPREPLY. LEVEL is the function that tells what there is.
_copyrpc_complete() {
    local level=$1 path='' i word option='' current answer ended=''
    local -a given commands=()
    local operand=''
    local -A options=() words=() several=()
    COMPREPLY=()
    _copyrpc_join_words
    current=${given[-1]}
    "$level" ''
    for ((i = 1; i < ${#given[@]} - 1; i++)); do
        word=${given[i]}
        if [ -n "$option" ]; then
            option=
        elif [ -z "$ended" ] && [ "$word" = -- ]; then
            ended=1
        elif [ -z "$ended" ] && [[ $word = -* ]]; then
            # Its value is the next word, unless it has one already, or needs none.
            case ${options[$word]-} in
            '' | '?'*) ;;
            *) option=$word ;;
            esac
        elif [[ " ${commands[*]} " = *" $word "* ]]; then
            path=${path:+$path }$word
            options=() commands=() operand=
            "$level" "$path"
        elif [ "$operand" = COMMAND ]; then
            _copyrpc_other_command "$word"
            return
        fi
    done
    if [ -n "$option" ]; then
        _copyrpc_value "${options[$option]}" ''
    elif [ -z "$ended" ] && [[ $current = --*=* ]]; then
        word=${options[${current%%=*}]-}
        [ -z "$word" ] || _copyrpc_value "${word#\?}" "${current%%=*}="
    elif [ -z "$ended" ] && [[ $current = -* ]]; then
        for word in "${!options[@]}"; do
            [[ $word = "$current"* ]] || continue
            case $word:${options[$word]} in
            *:) COMPREPLY+=("$word") ;;
            --*:'?'*) COMPREPLY+=("$word" "$word=") ;;
            --*) COMPREPLY+=("$word=") ;;
            *) COMPREPLY+=("$word") ;;
            esac
        done
    elif [ ${#commands[@]} -gt 0 ]; then
        mapfile -t COMPREPLY < <(compgen -W "${commands[*]}" -- "$current")
    elif [ "$operand" = COMMAND ]; then
        mapfile -t COMPREPLY < <(compgen -c -- "$current")
    elif [ -n "$operand" ]; then
        _copyrpc_value "$operand" ''
    fi
    _copyrpc_trim_answers
    for answer in "${COMPREPLY[@]}"; do
        [[ $answer = *[=:] ]] || return 0
    done
    compopt -o nospace 2>/dev/null
    return 0
}

# Behind `simnic run COMMAND`: as COMMAND itself completes, if bash-completion is there, and otherwise files.
_copyrpc_other_command() {
    local i
    if declare -F _command_offset > /dev/null; then
        for ((i = 1; i < COMP_CWORD; i++)); do
            [ "${COMP_WORDS[i]}" != "$1" ] || break
        done
        _command_offset "$i"
        return
    fi
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
}
