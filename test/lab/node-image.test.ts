import { createHash } from 'node:crypto'
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { tar } from '#image'
import { run } from '../../packages/lab/node/command.ts'
import { buildImage, imageOf } from '../../packages/lab/node/registry.ts'
import { unpackIn } from '../support/unpack.ts'

const temporary = await mkdtemp(join(tmpdir(), 'fairlead-image-'))
afterAll(() => rm(temporary, { recursive: true, force: true }))

const folder = () => mkdtemp(join(temporary, 'folder-'))

const unpack = (archive: Buffer): Promise<string> => unpackIn(temporary, archive)

describe('an image', () => {
  const digestOf = (bytes: Buffer) => `sha256:${createHash('sha256').update(bytes).digest('hex')}`

  it('names each of its parts by the digest of its bytes', async () => {
    const { layer, config, manifest } = imageOf(await tar([]), { Cmd: ['sh'] })
    for (const blob of [layer, config, manifest]) {
      expect(blob.digest).toBe(digestOf(blob.bytes))
      expect(blob.size).toBe(blob.bytes.length)
    }
    expect(JSON.parse(manifest.bytes.toString())).toMatchObject({
      config: { digest: config.digest, size: config.size },
      layers: [{ digest: layer.digest, size: layer.size }],
    })
    expect(JSON.parse(config.bytes.toString())).toMatchObject({
      os: 'linux',
      config: { Cmd: ['sh'] },
      rootfs: { diff_ids: [layer.digest] },
    })
  })

  it('has the same digest whatever the order of its files, and another one for other files', async () => {
    const a = { content: 'a' }
    const b = { link: 'a' }
    const digest = async (files: Record<string, typeof a | typeof b>) =>
      (await buildImage({ files, config: {} })).manifest.digest
    expect(await digest({ 'x/a': a, b })).toBe(await digest({ b, 'x/a': a }))
    expect(await digest({ 'x/a': a })).not.toBe(await digest({ 'x/b': a }))
  })

  it('takes folders of this machine with their links, empty folders and modes', async () => {
    const source = await folder()
    await mkdir(join(source, 'bin'))
    await mkdir(join(source, 'empty'))
    await writeFile(join(source, 'bin/tool'), 'x', { mode: 0o755 })
    await symlink('tool', join(source, 'bin/alias'))
    const { layer } = await buildImage({ files: { '/opt/app/': { from: source } }, config: {} })
    const root = await unpack(layer.bytes)
    const found = await run('find', [join(root, 'opt/app'), '-mindepth', '1', '-printf', '%P %y %m %l\\n'])
    expect(sortedLines(found)).toEqual(['bin d 755 ', 'bin/alias l 777 tool', 'bin/tool f 755 ', 'empty d 755 '])
    expect(await readFile(join(root, 'etc/passwd'), 'utf8')).toContain('root:x:0:0')
  })
})

function sortedLines(text: string): string[] {
  return text.split('\n').filter(Boolean).sort()
}
