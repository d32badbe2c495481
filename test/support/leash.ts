import { flushCompileCache } from 'node:module'

/**
 * Imported first by the processes that tests start (`node --import …/leash.ts …`): whatever kills the one that started
 * it, such a process does not stay. It asks, for a pipe would be one more open file in all that it starts itself.
 */
const starter = process.ppid
setInterval(() => {
  if (process.ppid !== starter) process.kill(process.pid, 'SIGKILL')
}, 500).unref()

// The next one reads what this one has compiled, although this one will hardly end by itself: half the time to start.
setTimeout(flushCompileCache, 700).unref()
