import { spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'

/**
 * Waits for the end of its input, which comes when the process that holds the other end of the pipe is gone, however it
 * went; a line before that releases it. Until then it costs a sleeping shell.
 */
const WAIT_FOR_END_OF_INPUT = 'read -r released || exec "$@"'

const stopScript = fileURLToPath(new URL('./stop-main.ts', import.meta.url))

export interface Reaper {
  /** Nothing is left to do when this process ends. */
  release(): void
}

/** From now on, the end of this process, kill -9 included, stops all that runs in `dir`. */
export function stopWithThisProcess(dir: string, { removeDir = false } = {}): Reaper {
  return afterThisProcess([process.execPath, stopScript, dir, ...(removeDir ? ['--remove'] : [])])
}

/** The same for a process that was started as the leader of a group, with all that it started. */
export function killGroupWithThisProcess(pid: number): Reaper {
  return afterThisProcess(['/bin/sh', '-c', `kill -KILL -${pid}`])
}

function afterThisProcess(command: string[]): Reaper {
  const shell = spawn('/bin/sh', ['-c', WAIT_FOR_END_OF_INPUT, 'fairlead-reaper', ...command], {
    // A session of its own: Ctrl-C in the terminal is for the process that waits for the servers, not for this one.
    detached: true,
    stdio: ['pipe', 'ignore', 'ignore'],
    cwd: '/',
  })
  shell.unref()
  // The pipe is a socket here, and must not keep the event loop alive any more than the shell does.
  ;(shell.stdin as typeof shell.stdin & { unref(): void }).unref()
  shell.stdin.on('error', () => {})
  return { release: () => void shell.stdin.end('released\n') }
}
