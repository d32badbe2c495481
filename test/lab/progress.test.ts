import { describe, expect, it } from 'vitest'
import { plainProgress, progressOn } from '#lab'

describe('progress', () => {
  it('is plain lines in a pipe', () => {
    const written: string[] = []
    const progress = progressOn({ write: (text) => written.push(text) })
    progress.line('hello')
    progress.task('work', 7).done('good')
    progress.task('more').failed()
    expect(written.join('')).toMatch(
      /^hello\nwork … \(about 7 s\)\n✓ work, [\d.]+ s: good\nmore …\n✗ more, [\d.]+ s\n$/,
    )
  })

  it('says again that a task goes on', async () => {
    const spoken = new Promise<string>((resolve) => {
      const seen: string[] = []
      const write = (text: string): void => {
        seen.push(text)
        if (text.includes(' left')) resolve(text)
      }
      const task = plainProgress({ write }, 0.01).task('work', 7)
      setTimeout(() => task.done(), 5000).unref()
    })
    // Nothing else keeps the event loop alive.
    const alive = setInterval(() => {}, 1000)
    expect(await spoken).toMatch(/^work: ▱+ 0 %, about 7 s left, [\d.]+ s\n$/)
    clearInterval(alive)
  })

  it('redraws what runs below what is done on a terminal, and cuts lines to its width', () => {
    let screen = ''
    const progress = progressOn({ isTTY: true, columns: 20, write: (text) => (screen += text) })
    const first = progress.task('first', 100)
    const second = progress.task('a second one with a long name')
    first.done()
    second.done()
    const last = screen.split('\x1b[2A').at(-1)?.replaceAll('\x1b', 'ESC')
    expect(last).toMatch(
      /^ESC\[32m✓ESC\[0m first, [\d.]+ sESC\[K\n {2}a second one withESC\[K\nESC\[JESC\[1AESC\[32m✓ESC\[0m a second one/,
    )
  })
})
