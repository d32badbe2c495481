import { spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'

/**
 * Waits for the end of its input, which comes when the process that holds the other end of the pipe has ended, however
 * it ended; a line before that releases it. Until then it costs a sleeping shell.
 */
const WAIT_FOR_END_OF_INPUT = 'read -r released || exec "$@"'

const stopScript = fileURLToPath(new URL('./stop-main.ts', import.meta.url))

export interface Reaper {
  /** The end of this process has no effect any more. */
  release(): void
}

/** Stops all processes of `dir` when this process ends, even by kill -9. */
export function stopWithThisProcess(dir: string, { removeDir = false } = {}): Reaper {
  return afterThisProcess([process.execPath, stopScript, dir, ...(removeDir ? ['--remove'] : [])])
}

/** Kills the process group of `pid` when this process ends. */
export function killGroupWithThisProcess(pid: number): Reaper {
  return afterThisProcess(['/bin/sh', '-c', `kill -KILL -${pid}`])
}

function afterThisProcess(command: string[]): Reaper {
  const shell = spawn('/bin/sh', ['-c', WAIT_FOR_END_OF_INPUT, 'fairlead-reaper', ...command], {
    // A session of its own, so that Ctrl-C in the terminal does not end the reaper.
    detached: true,
    stdio: ['pipe', 'ignore', 'ignore'],
    cwd: '/',
  })
  shell.unref()
  // The pipe is a socket here. Like the shell, it must not keep the event loop alive.
  ;(shell.stdin as typeof shell.stdin & { unref(): void }).unref()
  shell.stdin.on('error', () => {})
  return { release: () => void shell.stdin.end('released\n') }
}
