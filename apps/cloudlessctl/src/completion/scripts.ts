import type { Candidates } from './find-candidates.js';

/**
 * Formats candidates for the completion scripts: a line `VALUE<tab>DESCRIPTION` for each candidate,
 * then the line `:files` or `:directories` when the shell adds local names.
 */
export function formatCandidates({ candidates, local }: Candidates): string {
  const lines = candidates.map(({ value, description }) =>
    description === '' ? value : `${value}\t${description}`,
  );
  return [...lines, ...(local === undefined ? [] : [`:${local}`])]
    .map((line) => `${line}\n`)
    .join('');
}

/**
 * The completion script of each shell. A script passes the words of the command line up to the
 * cursor to the hidden command `__complete`, which completes the last word.
 */
export const COMPLETION_SCRIPTS: Readonly<Record<string, string>> = {
  bash: `_cloudlessctl() {
  local line value local_names= i
  local -a words=()
  # Bash splits words at "=" and ":". Put them together again.
  for ((i = 1; i <= COMP_CWORD; i++)); do
    local word=\${COMP_WORDS[i]} before=\${COMP_WORDS[i - 1]}
    if ((i > 1)) && { [[ $word == [=:]* && -n $word ]] || [[ $before == *[=:] ]]; }; then
      words[-1]+=$word
    else
      words+=("$word")
    fi
  done
  # Bash replaces only the part after the last "=" or ":".
  local typed=\${COMP_WORDS[COMP_CWORD]}
  [[ $typed == [=:] ]] && typed=
  local prefix=\${words[-1]%"$typed"}
  COMPREPLY=()
  while IFS= read -r line; do
    case $line in
      :files | :directories) local_names=$line ;;
      *)
        value=\${line%%$'\\t'*}
        COMPREPLY+=("\${value#"$prefix"}")
        ;;
    esac
  done < <("$1" __complete -- "\${words[@]}" 2>/dev/null)
  case $local_names in
    :files)
      compopt -o filenames
      mapfile -t -O "\${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$typed")
      ;;
    :directories)
      compopt -o filenames
      mapfile -t -O "\${#COMPREPLY[@]}" COMPREPLY < <(compgen -d -- "$typed")
      ;;
  esac
}
complete -F _cloudlessctl cloudlessctl
`,
  zsh: `#compdef cloudlessctl
_cloudlessctl() {
  local line value local_names=
  local -a candidates
  while IFS= read -r line; do
    case $line in
      :files | :directories) local_names=$line ;;
      *$'\\t'*)
        value=\${line%%$'\\t'*}
        candidates+=("\${value//:/\\\\:}:\${line#*$'\\t'}")
        ;;
      *) candidates+=("\${line//:/\\\\:}") ;;
    esac
  done < <("\${words[1]}" __complete -- "\${(@)words[2,CURRENT]}" 2>/dev/null)
  (( \${#candidates} )) && _describe -V cloudlessctl candidates
  [[ $local_names == :files ]] && _files
  [[ $local_names == :directories ]] && _files -/
}
if [[ \${funcstack[1]} == _cloudlessctl ]]; then
  _cloudlessctl "$@"
else
  (( \${+functions[compdef]} )) || { autoload -Uz compinit && compinit }
  compdef _cloudlessctl cloudlessctl
fi
`,
  fish: `function __cloudlessctl_complete
  set -l words (commandline -opc)
  set -l typed (commandline -ct)
  for line in ($words[1] __complete -- $words[2..-1] $typed 2>/dev/null)
    switch $line
      case :files
        __fish_complete_path $typed
      case :directories
        __fish_complete_directories $typed
      case '*'
        echo $line
    end
  end
end
complete -c cloudlessctl -f -k -a '(__cloudlessctl_complete)'
`,
};
