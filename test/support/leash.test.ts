import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { expect, it, vi } from 'vitest'

it('a fairlead that a test has started goes with the process of the test, however that ends', async () => {
  const door = new URL('./fairlead.ts', import.meta.url)
  const script = `
    const { startFairlead } = await import(${JSON.stringify(door.href)})
    const serving = startFairlead(['serve', 'at', '--port', '0'], {})
    await serving.logged(({ msg }) => msg === 'serving')
    console.log(serving.pid)`
  const starter = spawn(process.execPath, ['--input-type=module', '-e', script], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const [pid] = (await once(starter.stdout, 'data')) as [Buffer]
  expect(process.kill(Number(pid), 0)).toBe(true)
  starter.kill('SIGKILL')
  await vi.waitFor(() => expect(() => process.kill(Number(pid), 0)).toThrow('ESRCH'), { timeout: 60_000 })
})
