import { createHash } from 'node:crypto'
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import * as fc from 'fast-check'
import { afterAll, describe, expect, it } from 'vitest'
import { run } from '../../local/node/command.ts'
import { buildImage, imageOf } from '../../local/node/image.ts'
import { repositoryOf } from '../../local/node/image-push.ts'
import { type TarEntry, tar } from '../../local/node/tar.ts'

const temporary = await mkdtemp(join(tmpdir(), 'fairlead-image-'))
afterAll(() => rm(temporary, { recursive: true, force: true }))

const folder = () => mkdtemp(join(temporary, 'folder-'))

async function unpack(archive: Buffer): Promise<string> {
  const target = await folder()
  await writeFile(join(target, 'a.tar'), archive)
  await mkdir(join(target, 'root'))
  await run('tar', ['-xf', join(target, 'a.tar'), '-C', join(target, 'root'), '--no-same-owner'])
  return join(target, 'root')
}

describe('a tar archive', () => {
  it('is unpacked by the system to what went in', async () => {
    const root = await unpack(
      tar([
        { type: 'directory', path: 'bin', mode: 0o755 },
        { type: 'file', path: 'bin/sh', mode: 0o755, content: Buffer.from('#!') },
        { type: 'link', path: 'bin/ash', target: 'sh' },
        { type: 'file', path: 'empty', mode: 0o600, content: Buffer.alloc(0) },
      ]),
    )
    expect(await run('find', [root, '-mindepth', '1', '-printf', '%P %y %m %s %l\\n']).then(sortedLines)).toEqual([
      expect.stringMatching(/^bin d 755 /),
      'bin/ash l 777 2 sh',
      'bin/sh f 755 2 ',
      'empty f 600 0 ',
    ])
  })

  it('keeps names and contents of any length', async () => {
    const name = fc.string({ unit: fc.constantFrom('a', 'ü', '/', '界', '.x'), minLength: 80, maxLength: 220 })
    const content = fc.uint8Array({ maxLength: 1200 })
    await fc.assert(
      fc.asyncProperty(name, content, async (text, bytes) => {
        const path = `d/${text.replaceAll(/\/+/g, '/').replace(/^\/|\/$/g, '')}.`
        const link = `${path}l`
        const root = await unpack(
          tar([
            { type: 'file', path, mode: 0o644, content: bytes },
            { type: 'link', path: link, target: `/${path}` },
          ]),
        )
        expect(Buffer.compare(await readFile(join(root, path)), bytes)).toBe(0)
        expect((await run('readlink', [join(root, link)])).trimEnd()).toBe(`/${path}`)
      }),
      { numRuns: 15 },
    )
  })

  it('is whole blocks, so that archives of the same entries are the same bytes', () => {
    const entries: TarEntry[] = [{ type: 'file', path: 'a', mode: 0o644, content: Buffer.from('abc') }]
    expect(tar(entries).length).toBe(4 * 512)
    expect(tar(entries).equals(tar(entries))).toBe(true)
  })
})

describe('an image', () => {
  const digestOf = (bytes: Buffer) => `sha256:${createHash('sha256').update(bytes).digest('hex')}`

  it('names each of its parts by the digest of its bytes', () => {
    const { layer, config, manifest } = imageOf(tar([]), { Cmd: ['sh'] })
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

describe('where an image is pushed', () => {
  it.each([
    ['busybox', 'library/busybox', 'latest'],
    ['busybox:1.36', 'library/busybox', '1.36'],
    ['me/app', 'me/app', 'latest'],
    ['docker.io/busybox', 'library/busybox', 'latest'],
    ['gcr.io/x/y:v1', 'x/y', 'v1'],
    ['registry.k8s.io/pause:3.10', 'pause', '3.10'],
    ['localhost/app', 'app', 'latest'],
    ['localhost:5000/app:dev', 'app', 'dev'],
  ])('%s is %s, tag %s', (name, repository, tag) => {
    expect(repositoryOf(name)).toEqual({ repository, tag })
  })

  it.each(['', 'Busybox', 'a b', 'gcr.io/x@sha256:00'])('"%s" is refused with an example', (name) => {
    expect(() => repositoryOf(name)).toThrow(/write it like gcr.io\/project\/app:v1/)
  })
})

function sortedLines(text: string): string[] {
  return text.split('\n').filter(Boolean).sort()
}
