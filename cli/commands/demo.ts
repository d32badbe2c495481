import type { Command } from 'commander'
import type { CommonOptions } from '#host/config'
import { UsageError } from '#host/exit'
import type { CommandContext } from '../options.ts'

export function demoCommand(program: Command, { setExitCode }: CommandContext): void {
  program
    .command('demo')
    .description('one object’s life, from its creation to DONE, on real servers')
    .option('--keep', 'leave everything running, and print commands to go on by hand', false)
    .option(
      '--no-node',
      'without a node, whose programs take half of the first build: the demo itself reports the pod as succeeded',
    )
    .action(async (options: { keep: boolean; node: boolean }) => {
      if (options.keep && !options.node)
        throw new UsageError('--keep leaves a cluster that runs pods: leave --no-node out, or use local up --node none')
      const { context, ...given } = program.opts<CommonOptions>()
      if (context !== undefined) throw new UsageError('the demo uses the current context: give it a kubeconfig instead')
      const { showDemo } = await import('../actions/demo.ts')
      setExitCode(await showDemo(options, given))
    })
}
