/** The thread that watches the event loop of the main one; see exits.ts. */
import { readFileSync, writeSync } from 'node:fs'
import { Session } from 'node:inspector'
import { setTimeout as sleep } from 'node:timers/promises'
import { workerData } from 'node:worker_threads'
import { ENDING, type LoopSample, StallDetector, type StalledFrame, TURNS, type WatchdogData } from './stall.ts'

const { shared, limitMs, looks, event } = workerData as WatchdogData
const LOOK_MS = limitMs / looks
const FRAMES = 8
/** The time that the debugger has to stop JavaScript. It cannot stop native code, such as execSync. */
const PAUSE_MS = 2000

for (;;) {
  await isStillFor(limitMs)
  const told = new AbortController()
  if (!(await Promise.race([tellMainThread(), isStillFor(PAUSE_MS, told.signal)]))) {
    writeSync(2, `fairlead: the process is blocked outside of JavaScript for longer than the lease: killed\n`)
    process.kill(process.pid, 'SIGKILL')
  }
  told.abort()
  if (Atomics.load(shared, ENDING) !== 1) continue
  await Promise.race([isStillFor(PAUSE_MS), sleep(5 * PAUSE_MS)])
  process.kill(process.pid, 'SIGKILL')
}

async function isStillFor(ms: number, enough?: AbortSignal): Promise<false> {
  const detector = new StallDetector(LOOK_MS)
  for (;;) {
    await sleep(LOOK_MS)
    if (enough?.aborted || detector.look(look()) >= ms) return false
  }
}

function look(): LoopSample {
  return { turns: Atomics.load(shared, TURNS), atMs: performance.now(), waitedMs: waitedForCore() }
}

/**
 * Returns the milliseconds for which the main thread has waited for a CPU core, in total; 0 on systems that do not
 * report it (Linux does).
 */
function waitedForCore(): number {
  try {
    return Number(readFileSync('/proc/self/schedstat', 'utf8').split(' ')[1] ?? 0) / 1e6
  } catch {
    return 0
  }
}

/**
 * Makes the main thread log where it hangs; if the process then has to end, interrupts the code there with an
 * exception.
 */
function tellMainThread(): Promise<true> {
  const session = new Session()
  session.connectToMainThread()
  const urls = new Map<string, string>()
  session.on('Debugger.scriptParsed', ({ params }) => urls.set(params.scriptId, params.url))
  return new Promise((resolve) => {
    session.once('Debugger.paused', ({ params }) => {
      const frames = params.callFrames.slice(0, FRAMES).map((frame) => describe(frame, urls))
      session.post('Runtime.evaluate', { expression: `process.emit('${event}', ${JSON.stringify(frames)})` }, () => {
        if (Atomics.load(shared, ENDING) === 1) session.post('Runtime.terminateExecution')
        session.disconnect()
        resolve(true)
      })
    })
    session.post('Debugger.enable', () => session.post('Debugger.pause'))
  })
}

interface Frame {
  functionName: string
  location: { scriptId: string; lineNumber: number; columnNumber?: number }
}

function describe({ functionName, location }: Frame, urls: Map<string, string>): StalledFrame {
  const { scriptId, lineNumber, columnNumber = 0 } = location
  const line = `${urls.get(scriptId)}:${lineNumber + 1}`
  return { text: `${functionName || '<anonymous>'} ${line}`, place: `${line}:${columnNumber + 1}` }
}
