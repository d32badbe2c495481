import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import * as fc from 'fast-check'
import { afterAll, describe, expect, it } from 'vitest'
import { type TarEntry, tar } from '#image'
import { openLayout } from '../../packages/image/base.ts'
import { digestOf } from '../../packages/image/blob.ts'
import { run } from '../../packages/lab/node/command.ts'
import { smallBase, writeLayout } from '../support/images.ts'
import { unpackIn } from '../support/unpack.ts'

const temporary = await mkdtemp(join(tmpdir(), 'fairlead-image-'))
afterAll(() => rm(temporary, { recursive: true, force: true }))

const unpack = (archive: Buffer): Promise<string> => unpackIn(temporary, archive)

describe('a tar archive', () => {
  it('is unpacked by the system to what went in', async () => {
    const root = await unpack(
      await tar([
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
          await tar([
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

  it('has the same bytes in each version of this package: others would be another revision of each function', async () => {
    const entries: TarEntry[] = [
      { type: 'directory', path: 'd', mode: 0o755 },
      { type: 'file', path: `d/${'long/'.repeat(30)}name`, mode: 0o644, content: Buffer.from('abc') },
      { type: 'link', path: 'l', target: 'x'.repeat(120) },
    ]
    const archive = await tar(entries)
    expect(archive.length % 512).toBe(0)
    expect(digestOf(archive)).toBe('sha256:5fcc89beeaa6cc49858f9d941f0cc040ffd59cfa38decda51ec59a7cb8a2822c')
  })
})

it.each(['ustar', 'gnu', 'posix'])(
  'a layout is read from an archive that the system makes: --format=%s',
  async (format) => {
    const layout = await writeLayout(await mkdtemp(join(temporary, 'layout-')), await smallBase())
    if (format !== 'ustar') await writeFile(join(layout, 'x'.repeat(200)), 'a name that needs records of the format')
    const file = join(temporary, `${format}.tar`)
    await run('tar', [`--format=${format}`, '-cf', file, '-C', layout, '.'])
    const [one, other] = [await openLayout(file), await openLayout(layout)]
    expect(one.root).toEqual(other.root)
    for (const blob of (await smallBase()).blobs) expect((await one.read(blob)).equals(blob.bytes)).toBe(true)
  },
)

function sortedLines(text: string): string[] {
  return text.split('\n').filter(Boolean).sort()
}
