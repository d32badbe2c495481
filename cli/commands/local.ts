import type { Command } from 'commander'
import type { LocalOptions, LocalUpOptions } from '../actions/local.ts'
import { type CommandContext, dirOption, nodeOption, outputOption } from '../options.ts'

export function localCommands(program: Command, { print, setExitCode }: CommandContext): void {
  const local = program.command('local').description('real servers on this machine, for development')

  local
    .command('up')
    .description('start etcd, kube-apiserver, controllers, nats-server and a node, building them on first use')
    .addOption(dirOption())
    .addOption(nodeOption())
    .action(async (options: LocalUpOptions) => {
      const { localUp } = await import('../actions/local.ts')
      print(await localUp(options))
    })

  local
    .command('down')
    .description('stop them, completely')
    .addOption(dirOption())
    .action(async (options: LocalOptions) => {
      const { localDown } = await import('../actions/local.ts')
      print(await localDown(options))
    })

  local
    .command('status')
    .description('what runs; exit code 1 if not everything does')
    .addOption(dirOption())
    .addOption(outputOption('table', 'json'))
    .action(async (options: LocalOptions & { output: 'table' | 'json' }) => {
      const { localStatus } = await import('../actions/local.ts')
      const { text, running } = localStatus(options)
      print(text)
      if (!running) setExitCode(1)
    })

  local
    .command('env')
    .description('variables for kubectl, nats and fairlead: eval "$(fairlead local env)"')
    .addOption(dirOption())
    .addOption(outputOption('shell', 'json'))
    .action(async (options: LocalOptions & { output: 'shell' | 'json' }) => {
      const { localEnv } = await import('../actions/local.ts')
      localEnv(options, print)
    })
}
