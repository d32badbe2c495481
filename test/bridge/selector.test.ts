import { expect, it } from 'vitest'
import { parseSelector } from '#spec'

it.each<[selector: string, labels: Record<string, string>, matches: boolean]>([
  ['', {}, true],
  ['app=web', { app: 'web' }, true],
  ['app == web', { app: 'web' }, true],
  ['app=web', { app: 'db' }, false],
  ['app=', { app: '' }, true],
  ['app!=web', { app: 'db' }, true],
  ['app!=web', {}, true],
  ['app in (web, db)', { app: 'db' }, true],
  ['app in (web,db)', {}, false],
  ['app notin (web,db)', {}, true],
  ['app notin (web,db)', { app: 'web' }, false],
  ['app', { app: '' }, true],
  ['!app', { app: '' }, false],
  ['!app', {}, true],
  ['constructor', {}, false],
  ['!constructor', {}, true],
  ['app.kubernetes.io/name=x,tier in (a,b),!old', { 'app.kubernetes.io/name': 'x', tier: 'b' }, true],
  ['app.kubernetes.io/name=x,tier in (a,b),!old', { 'app.kubernetes.io/name': 'x', tier: 'b', old: '' }, false],
])('%s of %o: %s', (selector, labels, matches) => {
  expect(parseSelector(selector)(labels)).toBe(matches)
})

it.each(['a=b=c', 'in (a)', 'a in b', 'a>1', 'a,', '-a'])('refuses %s and says what is possible', (selector) => {
  expect(() => parseSelector(selector)).toThrow(/is not a label requirement: write key=value/)
})
