import { Command } from 'commander'
import { serveCommand } from './commands/serve.ts'
import { readConfig } from './config.ts'

/**
 * The command with `serve` alone. A cold start waits for every module that is loaded: a function needs neither the
 * clients of NATS and Kubernetes nor anything else that the whole command has.
 */
export function createLeanProgram(): Command {
  const program = new Command('fairlead').showHelpAfterError(
    '(fairlead --help lists commands, variables and exit codes)',
  )
  serveCommand(program, { config: () => readConfig(process.env) })
  return program
}
