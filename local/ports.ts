import { mkdirSync, readdirSync, readFileSync, rmdirSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { createServer, type Server } from 'node:net'
import { tmpdir, userInfo } from 'node:os'
import { join } from 'node:path'

/**
 * Below the ports that Linux (32768) and macOS (49152) hand out to outgoing connections, so that a server which is
 * down for a moment finds its port free when it comes back.
 */
const FIRST = 10_000
const LAST = 32_000

/** Different ports that are free on every given host, and that nobody else is given before a server can have bound them. */
export async function freePorts(count: number, hosts: readonly string[] = ['127.0.0.1']): Promise<number[]> {
  const reservations = openReservations()
  const found: number[] = []
  for (let attempt = 0; found.length < count; attempt++) {
    if (attempt > 1000) throw new Error(`no ${count} free ports between ${FIRST} and ${LAST} on ${hosts.join(', ')}`)
    const port = FIRST + Math.floor(Math.random() * (LAST - FIRST))
    if (reservations.take(port) && (await isFree(port, hosts))) found.push(port)
  }
  return found
}

/** The wanted port, or an error that says what to do about a taken one. */
export async function requirePort(port: number, what: string): Promise<number> {
  if (await isFree(port, ['127.0.0.1'])) return port
  throw new Error(`port ${port}, wanted for ${what}, is taken: stop the process that has it, or choose another port`)
}

/** At the end of a process: what it was given lately is bound by now, or not wanted any more. */
export function releasePorts(): void {
  const dir = reservations()
  const isOwn = (file: string) => readFileSync(file, 'utf8') === String(process.pid)
  try {
    for (const name of readdirSync(dir)) if (isOwn(join(dir, name))) rmSync(join(dir, name))
    rmdirSync(dir)
  } catch {
    // Others have ports there, or take theirs away at the same time.
  }
}

/** Long enough for a slow machine to start whatever is to listen there. */
const RESERVED_MS = 60_000

/** Several clusters may start at once, also in several processes: a file for each port that was given lately, and to whom. */
const reservations = (): string => join(tmpdir(), `fairlead-ports-${userInfo().uid}`)

function openReservations(): { take(port: number): boolean } {
  const dir = reservations()
  for (const name of namesIn(dir)) dropIfOld(join(dir, name))
  return {
    take(port) {
      mkdirSync(dir, { recursive: true, mode: 0o700 })
      try {
        writeFileSync(join(dir, String(port)), String(process.pid), { flag: 'wx' })
        return true
      } catch (error) {
        // ENOENT: somebody has just taken the empty folder away.
        if (['EEXIST', 'ENOENT'].includes((error as NodeJS.ErrnoException).code ?? '')) return false
        throw error
      }
    },
  }
}

function namesIn(dir: string): string[] {
  try {
    return readdirSync(dir)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return []
    throw error
  }
}

function dropIfOld(file: string): void {
  const stat = statSync(file, { throwIfNoEntry: false })
  if (stat && Date.now() - stat.mtimeMs > RESERVED_MS) rmSync(file, { force: true })
}

async function isFree(port: number, hosts: readonly string[]): Promise<boolean> {
  for (const host of hosts) {
    const server = await listen(port, host)
    if (!server) return false
    await new Promise((closed) => server.close(closed))
  }
  return true
}

function listen(port: number, host: string): Promise<Server | undefined> {
  return new Promise((resolve) => {
    const server = createServer()
    server.once('error', () => resolve(undefined))
    server.listen(port, host, () => resolve(server))
  })
}
