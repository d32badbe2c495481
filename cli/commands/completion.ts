import { type Command, InvalidArgumentError } from 'commander'
import { completionScript, type Shell, shells } from '../completion.ts'
import type { CommandContext } from '../options.ts'

export function completionCommand(program: Command, { print }: CommandContext): void {
  program
    .command('completion')
    .description('shell completion, e.g. source <(fairlead completion bash)')
    .argument('<shell>', shells.join(', '), (text: string) => {
      if (!shells.includes(text as Shell)) throw new InvalidArgumentError(`give one of ${shells.join(', ')}.`)
      return text as Shell
    })
    .action((shell: Shell) => print(completionScript(program, shell)))
}
