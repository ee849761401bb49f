// Runs the programs of README.md.

import test from 'node:test'
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { promisify } from 'node:util'
import { newPath } from './common.mjs'

const run = promisify(execFile)
const readme = readFileSync(path.join(import.meta.dirname, '..', 'README.md'), 'utf8')
const programs = [...readme.matchAll(/^```js\n(.*?)^```$/gms)].map((match) => match[1])

test('README.md contains programs', () => assert.equal(programs.length, 2))

for (const [i, program] of programs.entries()) {
  test(`program ${i + 1} of README.md runs`, async () => {
    const cwd = newPath()
    mkdirSync(cwd)
    // Its database is in another directory than the package that it imports.
    const text =
      `process.chdir(${JSON.stringify(cwd)})\n` +
      program.replace(
        /^import (.*) from '(perigeedb[^']*)'(.*)$/m,
        "const $1 = await import('$2')$3"
      )
    const options = { cwd: import.meta.dirname }
    const { stdout } = await run(process.execPath, ['--input-type=module', '-e', text], options)
    assert.match(stdout, i === 0 ? /12:31 low\n06:12 high/ : /moon \{ phase: 'full' \}/)
  })
}
