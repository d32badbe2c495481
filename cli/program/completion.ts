import { type Command, InvalidArgumentError } from 'commander'
import { quoted } from '#process/shell'
import type { CommandContext } from '../options.ts'

const shells = ['bash', 'zsh', 'fish'] as const
type Shell = (typeof shells)[number]

interface Word {
  /** The command path before the word, e.g. `queue`; empty at the top level. */
  path: string
  word: string
  description: string
}

/** Returns every command and long option, with the command path that precedes it. */
export function completionWords(program: Command): Word[] {
  const walk = (command: Command, path: string): Word[] => [
    ...command.options.flatMap((option) =>
      option.long === undefined || option.long === null
        ? []
        : [{ path, word: option.long, description: option.description }],
    ),
    ...command.commands.flatMap((child) => [
      { path, word: child.name(), description: child.description() },
      ...walk(child, `${path} ${child.name()}`.trim()),
    ]),
  ]
  return walk(program, '')
}

const byPath = (words: Word[]): Map<string, Word[]> => Map.groupBy(words, ({ path }) => path)

/** Returns the command paths without options: the value of an option is not part of a path. */
const commandPaths = (words: Word[]): string[] =>
  words.flatMap(({ path, word }) => (word.startsWith('--') ? [] : [`${path} ${word}`.trim()]))

const scripts: Record<Shell, (words: Word[]) => string> = {
  bash: (words) => {
    const cases = [...byPath(words)].map(
      ([path, list]) => `    ${quoted(path)}) words=${quoted(list.map(({ word }) => word).join(' '))} ;;`,
    )
    return `_fairlead() {
  local path= word words=
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "\${path:+$path }$word" in ${commandPaths(words).map(quoted).join('|')}) path="\${path:+$path }$word" ;; esac
  done
  case "$path" in
${cases.join('\n')}
  esac
  COMPREPLY=($(compgen -W "$words" -- "\${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _fairlead fairlead
`
  },
  zsh: (words) => {
    const cases = [...byPath(words)].map(([path, list]) => {
      const described = list
        .map(({ word, description }) => quoted(`${word.replaceAll(':', '\\:')}:${description}`))
        .join(' ')
      return `    ${quoted(path)}) entries=(${described}) ;;`
    })
    return `#compdef fairlead
_fairlead() {
  local -a entries
  local given= word
  for word in "\${(@)words[2,CURRENT-1]}"; do
    case "\${given:+$given }$word" in ${commandPaths(words).map(quoted).join('|')}) given="\${given:+$given }$word" ;; esac
  done
  case "$given" in
${cases.join('\n')}
  esac
  _describe fairlead entries
}
compdef _fairlead fairlead
`
  },
  fish: (words) => {
    const line = ({ path, word, description }: Word) => {
      const here = `__fairlead_path ${quoted(path)}`
      const what = word.startsWith('--') ? `-l ${word.slice(2)}` : `-a ${word}`
      return `complete -c fairlead -f -n ${quoted(here)} ${what} -d ${quoted(description)}`
    }
    return `function __fairlead_path
  set -l given
  for word in (commandline -opc)[2..-1]
    contains -- "$given $word" ${commandPaths(words)
      .map((path) => quoted(path.includes(' ') ? path : ` ${path}`))
      .join(' ')}; and set -a given $word
  end
  test "$given" = "$argv[1]"
end
${words.map(line).join('\n')}
`
  },
}

export const completionScript = (program: Command, shell: Shell): string => scripts[shell](completionWords(program))

export function completionCommand(program: Command, { print }: CommandContext): void {
  program
    .command('completion')
    .description('Print a completion script for a shell: source <(fairlead completion bash)')
    .argument('<shell>', `Shell: ${shells.join(', ')}`, (text: string) => {
      if (!shells.includes(text as Shell)) throw new InvalidArgumentError(`give one of ${shells.join(', ')}.`)
      return text as Shell
    })
    .action((shell: Shell) => print(completionScript(program, shell)))
}
