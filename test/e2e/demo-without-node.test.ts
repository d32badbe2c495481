import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { fairlead } from '../support/fairlead.ts'
import { BARE, demos, folderOfPrograms, PRETENDED } from './demo-process.ts'

const { shows, left } = demos()

it('the demo shows the same with --no-node, by programs in PATH, without Go: it ends the pod itself', async () => {
  const folder = await folderOfPrograms()
  const env = { PATH: folder, FAIRLEAD_CACHE: join(folder, 'cache') }
  const said = await shows([PRETENDED], ['--no-node'], env)
  expect(await left()).toEqual([])
  await rm(folder, { recursive: true })
  for (const name of BARE) expect(said).toMatch(new RegExp(`taken from PATH.* ${name} [0-9.]+ `))
  const refused = await fairlead(['demo', '--no-node', '--keep'])
  expect(refused).toMatchObject({ code: 2, stderr: expect.stringContaining('leave --no-node out') })
})
