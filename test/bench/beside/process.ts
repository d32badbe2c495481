import { spawn } from 'node:child_process'
import { once } from 'node:events'

/** The process of an operator, with all that it needs besides servers. */
export interface OperatorProcess {
  pid: number
  kill(signal: NodeJS.Signals): void
  exited: Promise<unknown>
}

const LAST_SAID = 4000

/** Its standard input stays open as long as this process lives: an operator that reads it ends with this process. */
export function startProcess(command: string, args: readonly string[], env: Record<string, string>): OperatorProcess {
  const child = spawn(command, args, { env: { ...process.env, ...env }, stdio: ['pipe', 'ignore', 'pipe'] })
  let said = ''
  let isWanted = true
  child.stderr?.on('data', (chunk: Buffer) => {
    said = (said + chunk.toString()).slice(-LAST_SAID)
  })
  child.stdin?.on('error', () => undefined)
  const exited = once(child, 'exit').then(([code, signal]) => {
    if (isWanted) process.stderr.write(`${command} has ended (${code ?? signal}):\n${said}\n`)
  })
  return {
    pid: child.pid ?? 0,
    exited,
    kill(signal) {
      isWanted = false
      child.kill(signal)
    },
  }
}
