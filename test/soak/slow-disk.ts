import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'

/** System calls on files that sockets do not use. */
const CALLS = 'pwrite64,fsync,fdatasync,ftruncate,openat,unlinkat,renameat'
const STRACE = 'strace'

export interface SlowDisk {
  /** Why it cannot be had here. */
  lacks?: string
  /** Each access takes so much more, for so long. */
  inflict(pid: number, delayMs: number, ms: number): Promise<void>
}

/** strace holds each access to files up: nats-server makes its system calls itself, without libc. */
export function slowDiskOf(): SlowDisk {
  const { status, error } = spawnSync(STRACE, ['-qq', '-o', '/dev/null', 'true'])
  if (status !== 0)
    return { lacks: error ? 'strace is not installed' : 'strace may not trace here', inflict: async () => {} }
  return { inflict }
}

async function inflict(pid: number, delayMs: number, ms: number): Promise<void> {
  const inject = [`trace=${CALLS}`, `inject=${CALLS}:delay_enter=${Math.round(1000 * delayMs)}`]
  const args = ['-f', '-qq', '-o', '/dev/null', ...inject.flatMap((what) => ['-e', what]), '-p', String(pid)]
  const strace = spawn(STRACE, args, { stdio: 'ignore' })
  const gone = once(strace, 'exit')
  await Promise.race([sleep(ms), gone])
  strace.kill('SIGTERM')
  await gone
}
