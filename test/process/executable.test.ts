import { existsSync } from 'node:fs'
import { chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import type { FunctionInput, KubeObject, RunLog } from '#contracts'
import { type Executable, executable } from '#process/executable'
import type { ProgramOptions } from '#process/program'
import { withEnv } from '../support/env.ts'
import { silent } from '../support/silent.ts'
import { until } from '../support/wait.ts'

const objectOf = (name: string): KubeObject => ({
  apiVersion: 'example.com/v1',
  kind: 'Shop',
  metadata: { name, namespace: 'x', uid: 'u', resourceVersion: '1' },
})
const inputOf = (name: string, more: object = {}): FunctionInput => ({
  object: objectOf(name),
  owned: {},
  related: {},
  attempt: 0,
  now: '2030-01-01T00:00:00Z',
  finalizing: false,
  ...more,
})

let dir: string
const started: Executable[] = []
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'fl-exec-'))
})
afterEach(async () => {
  for (const one of started.splice(0)) await one.stop()
})
afterAll(() => rm(dir, { recursive: true, force: true }))

let scripts = 0
/** A program of /bin/sh, which first writes the number of its process group to `PROGRAM.pid`. */
async function script(lines: string): Promise<string> {
  const path = join(dir, `program-${++scripts}`)
  await writeFile(path, `#!/bin/sh\necho $$ >> ${path}.pid\n${lines}\n`)
  await chmod(path, 0o755)
  return path
}
function program(command: string, options: Partial<ProgramOptions> = {}): Executable {
  const one = executable({ command, lines: false, timeoutSeconds: 60, concurrency: 4, variables: [], ...options })
  started.push(one)
  return one
}
const ask = (one: Executable, input = inputOf('a'), log: RunLog = silent, signal = new AbortController().signal) =>
  one.invoke(input, { log, signal })

const groupsOf = async (path: string): Promise<number[]> =>
  (await readFile(`${path}.pid`, 'utf8')).trim().split('\n').map(Number)
function isThere(group: number): boolean {
  try {
    return process.kill(-group, 0)
  } catch {
    return false
  }
}
const isGone = (path: string): Promise<boolean> => until(async () => !(await groupsOf(path)).some(isThere))

/** Answers each line with the number of its process and of the call. */
const STAYS = `while read -r line; do
  id=\${line#'{"id":'}; id=\${id%%,*}
  echo "{\\"id\\":$id,\\"status\\":{\\"pid\\":$$,\\"call\\":$id}}"
done`

describe('a program for each call', () => {
  it('gets the request on stdin, and its output is the outcome', async () => {
    const echo = program(await script(`printf '{"status":'; cat; printf '}'`))
    expect(await ask(echo)).toEqual({ status: inputOf('a') })
  })

  it('gets its arguments, and may be a program of PATH', async () => {
    const arguments_ = await script(`cat >/dev/null; printf '{"status":{"first":"%s","last":"%s"}}' "$1" "$2"`)
    expect(await ask(program(`sh  ${arguments_} one two`))).toEqual({ status: { first: 'one', last: 'two' } })
  })

  it('is not called for an object that is gone', async () => {
    expect(await ask(program(await script('exit 1')), inputOf('a', { object: null }))).toEqual({})
  })

  it('need not read its input, whatever the size', async () => {
    const large = inputOf('a', { related: { 'Secret.v1': [{ ...objectOf('b'), data: 'x'.repeat(2 ** 24) }] } })
    expect(await ask(program(await script(`echo '{}'`)), large)).toEqual({})
  })

  it('answers a read and an effect', async () => {
    const path = await script(`grep -q '"ask":"read"' && echo '{"external":[1]}' || echo '{"result":{"id":7}}'`)
    expect(await ask(program(path), inputOf('a', { ask: 'read' }))).toEqual([1])
    expect(await ask(program(path), inputOf('a', { ask: 'perform', effect: { kind: 'add' } }))).toEqual({ id: 7 })
    const silentOne = program(await script(`cat >/dev/null; echo '{}'`))
    expect(await ask(silentOne, inputOf('a', { ask: 'perform', effect: { kind: 'add' } }))).toBeNull()
    await expect(ask(silentOne, inputOf('a', { ask: 'read' }))).rejects.toThrow('print { "external": … }')
  })

  it.each([
    ['prints nothing', ':', 'the program printed nothing: print {} if nothing is to be done'],
    ['prints garbage', 'echo hello', 'the program printed 6 characters that are no JSON'],
    ['prints two answers', "echo '{}'; echo '{}'", 'that are no JSON: print one JSON object, and logs to stderr'],
    ['prints a list', "echo '[]'", 'JSON that is no object'],
    ['prints in Latin-1', `printf '{"status":{"city":"K\\366ln"}}'`, 'bytes that are no UTF-8'],
    ['ends in the middle of its answer', `printf '{"sta'`, 'that are no JSON'],
    ['fails in the middle of its answer', `printf '{"sta'; exit 3`, 'ended with exit code 3'],
    ['fails after its answer', "echo '{}'; exit 1", 'ended with exit code 1'],
    ['is killed in the middle of its answer', `printf '{"sta'; kill -9 $$`, 'was ended by SIGKILL'],
    ['never ends', 'sleep 1000', 'did not answer within 1 s, and was killed'],
    ['answers and never ends', "echo '{}'; sleep 1000", 'did not answer within 1 s, and was killed'],
    ['closes its output and never ends', 'exec >&-; sleep 1000', 'did not answer within 1 s, and was killed'],
    ['ignores SIGTERM', "trap '' TERM; while :; do sleep 1000; done", 'did not answer within 1 s, and was killed'],
    ['reports an error without a message', `echo '{"error":{}}'`, 'an error that is not valid: error.message'],
    ['reports an error of unknown form', `echo '{"error":{"message":"m","fatal":true}}'`, 'error that is not valid'],
  ])('that %s, is repeated, and nothing of it is left', async (_, lines, message) => {
    const path = await script(lines)
    const error = { name: 'Error', message: expect.stringContaining(message) as string }
    await expect(ask(program(path, { timeoutSeconds: 1 }))).rejects.toMatchObject(error)
    await isGone(path)
  })

  it('that ends, but for a child that keeps its output open, is repeated, and the child is killed', async () => {
    const path = await script(`sleep 1000 & echo '{}'`)
    await expect(ask(program(path))).rejects.toThrow('a process that it has started keeps its output open')
    await isGone(path)
  })

  it('that leaves a child without its output has answered, and the child is killed', async () => {
    const path = await script(`sleep 1000 >/dev/null & echo '{}'`)
    expect(await ask(program(path))).toEqual({})
    await isGone(path)
  })

  it.each([
    ['a gigabyte', 'head -c 1073741824 /dev/zero', 'AnswerTooLarge', 'more than 33554432 bytes'],
    ['an unknown field', `echo '{"aply":[]}'`, 'InvalidOutcome', 'aply'],
    ['a terminal error', `echo '{"error":{"message":"no","reason":"Wrong","terminal":true}}'`, 'Wrong', 'no'],
  ])('that prints %s, is not repeated until its object changes', async (_, lines, reason, message) => {
    const path = await script(lines)
    const error = { name: 'TerminalError', reason, message: expect.stringContaining(message) as string }
    await expect(ask(program(path))).rejects.toMatchObject(error)
    await isGone(path)
  })

  it('says when it is to be repeated', async () => {
    const path = await script(`echo '{"error":{"message":"busy","reason":"Busy","retryAfterSeconds":1.5}}'`)
    const error = { name: 'RetryAfterError', afterSeconds: 1.5, reason: 'Busy', message: 'busy' }
    await expect(ask(program(path))).rejects.toMatchObject(error)
  })

  it('prints secrets of its input into no error', async () => {
    const input = inputOf('a', { related: { 'Secret.v1': [{ ...objectOf('b'), data: { password: 'hunter2' } }] } })
    for (const lines of ['cut -c 2-', 'cat; exit 1', 'cat >&2; exit 1', 'cat; echo']) {
      const error = await ask(program(await script(lines)), input).catch((cause: Error) => cause)
      expect(`${String(error)} ${(error as Error).stack}`).not.toContain('hunter2')
    }
  })

  it('delays no other call while it never ends, and is killed when nobody waits for it', async () => {
    const path = await script(`grep -q stuck && exec sleep 1000; echo '{}'`)
    const one = program(path, { concurrency: 2 })
    const caller = new AbortController()
    const stuck = ask(one, inputOf('stuck'), silent, caller.signal)
    const others = ['a', 'b', 'c'].map((name) => ask(one, inputOf(name)))
    expect(await Promise.all(others)).toEqual([{}, {}, {}])
    caller.abort(new Error('the caller is gone'))
    await expect(stuck).rejects.toThrow('nobody waits for its answer')
    await isGone(path)
  })

  it('runs in no more processes than allowed, and a call that is given up waits no more', async () => {
    const path =
      await script(`mkdir ${dir}/running.$$; until [ $(ls -d ${dir}/running.* | wc -l) -ge 2 ] || [ -e ${dir}/both ]; do sleep 0.01; done
      touch ${dir}/both; sleep 0.05; n=$(ls -d ${dir}/running.* | wc -l)
      rmdir ${dir}/running.$$; printf '{"status":{"running":%d}}' $n`)
    const one = program(path, { concurrency: 2 })
    const caller = new AbortController()
    const calls = Array.from({ length: 8 }, (_, index) => ask(one, inputOf(`${index}`)))
    const waits = ask(one, inputOf('late'), silent, caller.signal)
    caller.abort(new Error('gone'))
    await expect(waits).rejects.toThrow('gone')
    const running = (await Promise.all(calls)).map(
      (answer) => (answer as { status: { running: number } }).status.running,
    )
    expect(Math.max(...running)).toBe(2)
    expect(await groupsOf(path)).toHaveLength(8)
  })

  it('gets no variables but those of its place, and those that are named', async () => {
    const path = await script(
      `cat >/dev/null; printf '{"status":{"names":"%s"}}' "$(env | cut -d= -f1 | sort | tr '\\n' ' ')"`,
    )
    using _env = withEnv({
      NATS_URL: 'nats://user:secret@host',
      KUBECONFIG: '/k',
      FAIRLEAD_REVISION: 'r',
      SHOP_URL: 'http://s',
    })
    const { status } = (await ask(program(path, { variables: ['SHOP_URL'] }))) as { status: { names: string } }
    const names = status.names.trim().split(' ')
    expect(names).toEqual(expect.arrayContaining(['PATH', 'SHOP_URL']))
    // The shell itself adds some.
    const known = /^(PATH|HOME|USER|LANG|LC_\w+|TZ|TMPDIR|SHOP_URL|PWD|OLDPWD|SHLVL|_)$/
    expect(names.filter((name) => !known.test(name))).toEqual([])
  })

  it('logs by stderr, as lines of its call, within limits', async () => {
    const path = await script(`echo first >&2; head -c 5000 /dev/zero | tr '\\0' x >&2; echo >&2
      i=0; while [ $i -lt 300 ]; do echo "line $i" >&2; i=$((i+1)); done; printf last >&2; echo '{}'`)
    const lines: string[] = []
    const note = (_: object, line: string): void => void lines.push(line)
    expect(await ask(program(path), inputOf('a'), { ...silent, info: note, warn: note })).toEqual({})
    expect(lines.slice(0, 3)).toEqual(['first', 'x'.repeat(2000), 'line 0'])
    expect(lines.slice(200)).toEqual(['the log has 200 lines of each call, not the others'])
  })
})

describe('a program that stays', () => {
  const staying = (path: string, options: Partial<ProgramOptions> = {}) => program(path, { lines: true, ...options })
  const statusOf = (answer: unknown) => (answer as { status: { pid: number; call: number } }).status

  it('answers calls one after the other, and calls at once in several processes', async () => {
    const one = staying(await script(STAYS), { concurrency: 2 })
    const first = statusOf(await ask(one))
    expect(statusOf(await ask(one))).toEqual({ pid: first.pid, call: 2 })
    const both = (await Promise.all([ask(one), ask(one), ask(one)])).map(statusOf)
    expect(new Set(both.map(({ call }) => call)).size).toBe(3)
    expect(new Set(both.map(({ pid }) => pid)).size).toBe(2)
  })

  it.each([
    ['ends before it answers', 'read -r line', 'ended with exit code 0 before it answered'],
    ['ends in the middle of its answer', `read -r line; printf '{"id":'`, 'exit code 0 in the middle of its answer'],
    ['fails in the middle of its answer', `read -r line; printf '{"id":'; exit 3`, 'exit code 3 in the middle'],
    ['prints garbage', 'read -r line; echo hello; sleep 1000', 'that are no JSON: print one line with a JSON object'],
    ['prints an empty line', 'read -r line; echo; sleep 1000', 'the program printed nothing'],
    ['forgets the number of its call', "read -r line; echo '{}'; sleep 1000", 'the program answered another call'],
    ['answers another call', `read -r line; echo '{"id":7}'; sleep 1000`, 'the program answered another call'],
    ['never answers', "trap '' TERM; while :; do sleep 1000; done", 'did not answer within 5 s, and was killed'],
    ['prints a line without an end', 'head -c 1073741824 /dev/zero', 'more than 33554432 bytes'],
  ])('and %s, is killed, and another process answers the next call', async (_, lines, message) => {
    const path = await script(
      `[ -e $0.once ] && { ${STAYS.replaceAll('\n', '; ').replace('do;', 'do')}; exit; }\ntouch $0.once\n${lines}`,
    )
    // The call that follows has to come to its end, too.
    const one = staying(path, { concurrency: 1, timeoutSeconds: lines.startsWith('trap') ? 5 : 60 })
    await expect(ask(one)).rejects.toThrow(message)
    expect(statusOf(await ask(one)).call).toBe(2)
    const [bad = 0] = await groupsOf(path)
    await until(() => !isThere(bad))
  })

  it('and prints a second line, is killed, before the line is taken for another answer', async () => {
    const twice = STAYS.replace(/echo (".*")/, 'printf "%s\\n%s\\n" $1 $1').replaceAll(
      '$1',
      '"{\\"id\\":$id,\\"status\\":{\\"pid\\":$$,\\"call\\":$id}}"',
    )
    const one = staying(await script(twice), { concurrency: 1 })
    const [first, second] = [statusOf(await ask(one)), statusOf(await ask(one))]
    expect([first.call, second.call]).toEqual([1, 2])
    expect(second.pid).not.toBe(first.pid)
  })

  it('is taken for nothing when a child of it answers late, with the number of the next call', async () => {
    const path = await script('')
    const late = `while (!fs.existsSync('${path}.second')) ;
      process.stdout.on('error', () => {}).write('{"id":2,"status":{"of":"the late one"}}\\n', () => fs.writeFileSync('${path}.late', ''))`
    const lines = `const fs = require('node:fs')
      if (fs.existsSync('${path}.first')) {
        fs.writeFileSync('${path}.second', '')
        while (!fs.existsSync('${path}.late')) ;
        console.log('{"id":2,"status":{"of":"the second one"}}')
      } else {
        const stdio = ['ignore', 'inherit', 'ignore']
        require('node:child_process').spawn(process.execPath, ['-e', ${JSON.stringify(late)}], { detached: true, stdio })
        fs.writeFileSync('${path}.first', '')
        setInterval(() => {}, 1000)
      }`
    await writeFile(path, `#!${process.execPath}\n${lines}\n`)
    const one = staying(path, { concurrency: 1 })
    const caller = new AbortController()
    const first = ask(one, inputOf('a'), silent, caller.signal)
    await until(() => existsSync(`${path}.first`))
    caller.abort(new Error('the caller is gone'))
    await expect(first).rejects.toThrow('nobody waits for its answer')
    expect(await ask(one)).toEqual({ status: { of: 'the second one' } })
  })

  it('gets each request as one line, whatever its reader takes for the end of a line', async () => {
    const path = await script('')
    const reader = `require('node:readline').createInterface({ input: process.stdin }).on('line', (line) => {
      const { id, object } = JSON.parse(line)
      console.log(JSON.stringify({ id, status: { said: object.metadata.annotations.said } }))
    })`
    await writeFile(path, `#!${process.execPath}\n${reader}\n`)
    const said = 'a\u2028b\u2029c\nd\re'
    const object = { ...objectOf('a'), metadata: { ...objectOf('a').metadata, annotations: { said } } }
    expect(await ask(staying(path), inputOf('a', { object }))).toEqual({ status: { said } })
  })

  it('goes on after an outcome that is not valid, and after an error that it reports', async () => {
    const path = await script(`while read -r line; do
      id=\${line#'{"id":'}; id=\${id%%,*}
      case $id in 1) rest='"aply":[]';; 2) rest='"error":{"message":"no","terminal":true}';; *) rest='"status":{}';; esac
      echo "{\\"id\\":$id,$rest}"
    done`)
    const one = staying(path, { concurrency: 1 })
    await expect(ask(one)).rejects.toMatchObject({ reason: 'InvalidOutcome' })
    await expect(ask(one)).rejects.toMatchObject({ message: 'no' })
    expect(await ask(one)).toEqual({ status: {} })
    expect(await groupsOf(path)).toHaveLength(1)
  })

  it('ends with its input at a stop, or is killed', async () => {
    const [polite, stubborn] = [
      await script(`${STAYS}\ntouch $0.ended`),
      await script(`${STAYS}\nwhile :; do sleep 1000; done`),
    ]
    const both = [polite, stubborn].map((path) => staying(path))
    for (const one of both) {
      await ask(one)
      await one.stop()
    }
    expect(await readFile(`${polite}.ended`, 'utf8')).toBe('')
    for (const path of [polite, stubborn]) await isGone(path)
  })
})

describe('a program that cannot be called', () => {
  it.each([
    ['./nope', 'there is no program ./nope: give its path'],
    ['no-such-program --fast', 'there is no program no-such-program'],
    ['', 'there is no program'],
    ['/tmp', 'there is no program /tmp'],
    ['./reconcile.sh | tee log', 'no shell reads it'],
    ['echo "a b"', 'no shell reads it'],
  ])('is refused at the start: %j', (command, message) => {
    expect(() => program(command)).toThrow(message)
  })

  it('is refused at the start if it is not executable, or a variable is not there', async () => {
    const path = await script(':')
    expect(() => program(path, { variables: ['NO_SUCH_VARIABLE'] })).toThrow('NO_SUCH_VARIABLE, which is not set')
    await chmod(path, 0o644)
    expect(() => program(path)).toThrow(`${path} is not executable: chmod +x ${path}`)
  })

  it('fails its call if it goes away later', async () => {
    const path = await script(`echo '{}'`)
    const one = program(path)
    await rm(path)
    await expect(ask(one)).rejects.toThrow(/cannot be started: .*ENOENT/)
  })

  it('fails its call with the fix if its interpreter is not there', async () => {
    const path = await script('')
    await writeFile(path, '#!/no/such/shell\n')
    await expect(ask(program(path))).rejects.toThrow('ENOENT: it, or the interpreter in its first line, is not there')
  })
})
