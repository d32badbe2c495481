import { execFile } from 'node:child_process'
import { rm, writeFile } from 'node:fs/promises'
import { join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'
import { stringify } from 'yaml'
import { ensureBinaries, silentProgress } from '#lab'
import { shortTempDir } from '../support/servers.ts'

const DEPLOY = fileURLToPath(new URL('../../deploy', import.meta.url))
const DIGEST = `sha256:${'0'.repeat(64)}`

it.each([
  ['fairlead', 3],
  ['fairlead-ha', 3],
  ['fairlead-small', 2],
])('a kustomization can name every image of %s by its digest', async (folder, count) => {
  const kubectl = (await ensureBinaries(['kubectl'], silentProgress))('kubectl')
  const dir = await shortTempDir()
  const kustomization = {
    resources: [relative(dir, join(DEPLOY, folder))],
    images: [
      { name: 'fairlead', newName: 'registry.example.com/fairlead', digest: DIGEST },
      { name: 'nats', digest: DIGEST },
    ],
  }
  await writeFile(join(dir, 'kustomization.yaml'), stringify(kustomization))
  const { stdout } = await promisify(execFile)(kubectl, ['kustomize', dir])
  await rm(dir, { recursive: true })
  const images = [...stdout.matchAll(/^ +image: (.*)$/gm)].map(([, image]) => image)
  const fairlead = `registry.example.com/fairlead@${DIGEST}`
  expect(images).toHaveLength(count)
  expect(new Set(images)).toEqual(new Set([`nats@${DIGEST}`, fairlead]))
})
