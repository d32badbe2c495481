import { execFileSync } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { linkSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

/**
 * Runs `work` while no other process holds `file`. It takes over the lock of a dead holder. Two processes that do so at
 * the same moment may both run, so the work must be safe to run twice; the lock only saves repeated work.
 */
export async function withLock<T>(
  file: string,
  onWait: (holder: Identity) => void,
  work: () => Promise<T>,
): Promise<T> {
  await acquire(file, onWait)
  try {
    return await work()
  } finally {
    rmSync(file, { force: true })
  }
}

async function acquire(file: string, onWait: (holder: Identity) => void): Promise<void> {
  const me = identify(process.pid)
  if (!me) throw new Error(`cannot lock ${file}: this system does not report when process ${process.pid} started`)
  const claim = `${file}.${randomUUID()}`
  writeFileSync(claim, formatIdentity(me))
  try {
    for (let told = false; !tryLink(claim, file); told = true) {
      const holder = holderOf(file)
      if (!holder || !isAlive(holder)) rmSync(file, { force: true })
      else {
        if (!told) onWait(holder)
        await sleep(200)
      }
    }
  } finally {
    rmSync(claim, { force: true })
  }
  removeDeadClaims(file)
}

/** A process that is killed while it waits for the lock leaves its claim. One that is being written has no holder yet. */
function removeDeadClaims(file: string): void {
  for (const name of readdirSync(dirname(file))) {
    const claim = join(dirname(file), name)
    const holder = name.startsWith(`${basename(file)}.`) ? holderOf(claim) : undefined
    if (holder && !isAlive(holder)) rmSync(claim, { force: true })
  }
}

function tryLink(claim: string, file: string): boolean {
  try {
    linkSync(claim, file)
    return true
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false
    throw error
  }
}

function holderOf(file: string): Identity | undefined {
  try {
    return parseIdentity(readFileSync(file, 'utf8'))
  } catch {
    return undefined
  }
}

/** Identifies a process on this machine. The system may reuse a pid; pid and start time together are unique. */
export interface Identity {
  pid: number
  /** Field 22 of /proc/PID/stat on Linux, `ps -o lstart` elsewhere. It is only compared, never parsed. */
  startTime: string
}

const onLinux = process.platform === 'linux'

/** A shell command that prints the start time of process `$$`, in the form of {@link Identity.startTime}. */
export const startTimeCommand = onLinux ? `cut -d' ' -f22 /proc/$$/stat` : 'ps -o lstart= -p $$'

/** Returns the identity of a living process; undefined if there is none, or only a zombie. */
export function identify(pid: number): Identity | undefined {
  const startTime = onLinux ? startTimeFromProc(pid) : startTimeFromPs(pid)
  return startTime === undefined ? undefined : { pid, startTime }
}

export function isAlive(identity: Identity): boolean {
  return identify(identity.pid)?.startTime === identity.startTime
}

/** `PID START` as written by {@link formatIdentity} and by the shell that starts a process. */
export function parseIdentity(text: string): Identity | undefined {
  const [, pid, startTime] = /^(\d+) (.+)$/.exec(text.trim()) ?? []
  return pid && startTime ? { pid: Number(pid), startTime: startTime.trim() } : undefined
}

function formatIdentity(identity: Identity): string {
  return `${identity.pid} ${identity.startTime}`
}

function startTimeFromProc(pid: number): string | undefined {
  let stat: string
  try {
    stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
  } catch {
    return undefined
  }
  // Field 2, the command, may contain spaces and brackets, so the fields are counted from its last bracket. Field 3 is
  // the state.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  const [state, threads, startTime] = [fields[0], Number(fields[17]), fields[19]]
  // The first thread may be a zombie while other threads still have ports and files open.
  return state === 'Z' && threads <= 1 ? undefined : startTime
}

function startTimeFromPs(pid: number): string | undefined {
  try {
    const [state, ...start] = execFileSync('ps', ['-o', 'state=,lstart=', '-p', String(pid)], { encoding: 'utf8' })
      .trim()
      .split(/\s+/)
    return state?.startsWith('Z') ? undefined : start.join(' ')
  } catch {
    return undefined
  }
}
