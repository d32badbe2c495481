/** Preloaded into a process of Fairlead: answers each message of its parent with the functions that ran since the last one. */
import { Session } from 'node:inspector/promises'

const ROOT = new URL('../../', import.meta.url).href

const session = new Session()
session.connect()
await session.post('Profiler.enable')
await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: true })

process.on('message', () => {
  void session.post('Profiler.takePreciseCoverage').then(({ result }) => {
    const product = result.filter(({ url }) => url.startsWith(ROOT) && !/\/node_modules\/|\/test\//.test(url))
    const ran = product.flatMap(({ url, functions }) =>
      functions
        // The function of the module itself runs when the module is loaded.
        .filter(({ functionName, ranges }) => functionName !== '' || ranges[0]?.startOffset !== 0)
        // A function that goes on after an `await` counts by its blocks.
        .filter(({ ranges }) => ranges.some(({ count }) => count > 0))
        .map(({ functionName, ranges }) => `${url.slice(ROOT.length)} ${functionName} ${ranges[0]?.startOffset}`),
    )
    process.send?.(ran)
  })
})
