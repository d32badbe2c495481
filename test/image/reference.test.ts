import { describe, expect, it } from 'vitest'
import { DEFAULT_BASE, nameOf, parseReference } from '#image'

const DIGEST = `sha256:${'ab'.repeat(32)}`

describe('a reference of an image', () => {
  it.each([
    ['busybox', 'docker.io', 'library/busybox', undefined],
    ['busybox:1.36', 'docker.io', 'library/busybox', '1.36'],
    ['me/app', 'docker.io', 'me/app', undefined],
    ['docker.io/busybox', 'docker.io', 'library/busybox', undefined],
    ['gcr.io/x/y:v1', 'gcr.io', 'x/y', 'v1'],
    ['registry.k8s.io/pause:3.10', 'registry.k8s.io', 'pause', '3.10'],
    ['localhost/app', 'localhost', 'app', undefined],
    ['localhost:5000/app:dev', 'localhost:5000', 'app', 'dev'],
    [`127.0.0.1:5000/a/b:1@${DIGEST}`, '127.0.0.1:5000', 'a/b', '1'],
  ])('%s is in %s: %s, tag %s', (text, registry, repository, tag) => {
    expect(parseReference(text)).toMatchObject({ registry, repository, ...(tag !== undefined && { tag }) })
  })

  it('has a digest, and is written as it is read', () => {
    const text = `registry.example.com/team/app:v1@${DIGEST}`
    expect(parseReference(text).digest).toBe(DIGEST)
    expect(nameOf(parseReference(text))).toBe(text)
  })

  it.each(['', 'Busybox', 'a b', 'gcr.io/x@sha256:00', 'a//b', '../x'])('"%s" is refused with an example', (text) => {
    expect(() => parseReference(text)).toThrow(/write it like registry.example.com\/team\/app:v1/)
  })

  it('is a digest for the base that is taken by default', () => {
    expect(parseReference(DEFAULT_BASE).digest).toMatch(/^sha256:/)
  })
})
