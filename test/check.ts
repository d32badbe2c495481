import { CHECKS, check } from './support/checks.ts'

/** `npm run check`: what test/check.test.ts does in the tests, without them. */
const all = Object.values(CHECKS).map(async (command) => {
  const { passed, said } = await check(command)
  console.log(`${said}\n${command}: ${passed ? 'passed' : 'failed'}`.trimStart())
  if (!passed) process.exitCode = 1
})
await Promise.all(all)
