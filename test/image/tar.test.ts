import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import * as fc from 'fast-check'
import { afterAll, describe, expect, it } from 'vitest'
import { type TarEntry, tar } from '../../packages/image/tar.ts'
import { run } from '../../packages/lab/node/command.ts'
import { unpackIn } from '../support/unpack.ts'

const temporary = await mkdtemp(join(tmpdir(), 'fairlead-image-'))
afterAll(() => rm(temporary, { recursive: true, force: true }))

const unpack = (archive: Buffer): Promise<string> => unpackIn(temporary, archive)

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

function sortedLines(text: string): string[] {
  return text.split('\n').filter(Boolean).sort()
}
