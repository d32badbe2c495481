import { setTimeout as sleep } from 'node:timers/promises'
import type { Fleet, Member } from '../../bench/fleet/sides.ts'
import { residentMiBOf } from '../../support/usage.ts'

const EVERY_MS = 60_000
const FIRST_MS = 30_000
const LONGEST_STOP_SECONDS = 30
/** A process that was stopped goes on for so long: it takes its lease for valid until it looks. */
const AWAKE_MS = 2000
const LONGEST_AWAY_SECONDS = 5

/** The resident memory of a process, MiB, once a minute. */
export type Memory = Map<Member, { pid: number; mib: number }[]>

export interface Told {
  /** One line. */
  say: (line: string) => void
  /** Something that must not be. */
  wrong: (what: string) => void
  /** Of a process that has ended. */
  why: (pid: number) => Promise<string>
}

/** Each minute one process dies, some of them after a while in which they are stopped, and starts again. */
export async function killEachMinute(
  { members }: Fleet,
  minutes: number,
  random: () => number,
  told: Told,
): Promise<Memory> {
  const titles = [...new Set(members.map(({ title }) => title))]
  const memory: Memory = new Map(members.map((one) => [one, []]))
  const began = performance.now()
  for (let minute = 0; minute < minutes; minute++) {
    await sleep(Math.max(0, began + FIRST_MS + minute * EVERY_MS - performance.now()))
    await startEnded(members, told)
    noteMemory(memory)
    const [which = '', index, isStopped, stop, away] = [
      titles[Math.floor(titles.length * random())],
      random(),
      random() < 1 / 3,
      2 + (LONGEST_STOP_SECONDS - 2) * random(),
      1 + (LONGEST_AWAY_SECONDS - 1) * random(),
    ]
    const alike = members.filter(({ title }) => title === which)
    const at = Math.floor(alike.length * index)
    const member = alike[at] as Member
    const pid = member.pid()
    const name = `${which} ${at + 1} of ${alike.length} (${pid})`
    try {
      if (isStopped) {
        member.signal('SIGSTOP')
        await sleep(1000 * stop)
        member.signal('SIGCONT')
        await sleep(AWAKE_MS)
      }
      await member.kill()
      await sleep(1000 * away)
      await member.start()
      const stopped = isStopped ? `stopped for ${stop.toFixed(0)} s, ` : ''
      told.say(`${name}: ${stopped}killed, started again after ${away.toFixed(0)} s`)
    } catch (error) {
      told.wrong(`${name} cannot be killed and started again: ${error}`)
    }
  }
  return memory
}

export function noteMemory(memory: Memory): void {
  for (const [one, sizes] of memory) sizes.push({ pid: one.pid(), mib: residentMiBOf(one.pid()) })
}

/** No process may have ended, except by a fault. */
export async function startEnded(members: readonly Member[], { wrong, why }: Told): Promise<void> {
  for (const one of members) {
    const pid = one.pid()
    if (isAlive(pid)) continue
    wrong(`${one.title} (${pid}) ended by itself: ${await why(pid)}`)
    await one.start().catch((error) => wrong(`${one.title} cannot be started: ${error}`))
  }
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}
