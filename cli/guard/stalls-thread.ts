/** The thread that watches the event loop of the main one; see stalls.ts. */
import { writeSync } from 'node:fs'
import { Session } from 'node:inspector'
import { setTimeout as sleep } from 'node:timers/promises'
import { workerData } from 'node:worker_threads'
import { ENDING, type StallWatch, TURNS } from './stalls.ts'

const { shared, limitMs, looks, event } = workerData as StallWatch
const FRAMES = 8
/** The debugger can stop JavaScript anywhere, but not what has left it, such as execSync. */
const PAUSE_MS = 2000

let turns = -1
let still = 0
for (;;) {
  // Counted in looks of this thread, not by the clock: a machine that sleeps or a stopped process does not stall.
  await sleep(limitMs / looks)
  const now = Atomics.load(shared, TURNS)
  still = now === turns ? still + 1 : 0
  turns = now
  if (still < looks) continue
  still = 0
  if (!(await Promise.race([tellMainThread(), sleep(PAUSE_MS, false)]))) {
    writeSync(2, `fairlead: the process is blocked outside of JavaScript for longer than the lease: killed\n`)
    process.kill(process.pid, 'SIGKILL')
  }
  if (Atomics.load(shared, ENDING) !== 1) continue
  await sleep(PAUSE_MS)
  process.kill(process.pid, 'SIGKILL')
}

/** Has the main thread log where it hangs; if it then wants to end, throws it out of there. */
function tellMainThread(): Promise<true> {
  const session = new Session()
  session.connectToMainThread()
  const urls = new Map<string, string>()
  session.on('Debugger.scriptParsed', ({ params }) => urls.set(params.scriptId, params.url))
  return new Promise((resolve) => {
    session.once('Debugger.paused', ({ params }) => {
      const stack = params.callFrames.slice(0, FRAMES).map((frame) => describe(frame, urls))
      session.post('Runtime.evaluate', { expression: `process.emit('${event}', ${JSON.stringify(stack)})` }, () => {
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
  location: { scriptId: string; lineNumber: number }
}

function describe({ functionName, location: { scriptId, lineNumber } }: Frame, urls: Map<string, string>): string {
  return `${functionName || '<anonymous>'} ${urls.get(scriptId)}:${lineNumber + 1}`
}
