// Transformed code that all projects and workers of jest share.
const { createHash } = require('node:crypto');
const { mkdirSync, readFileSync, renameSync, writeFileSync } = require('node:fs');
const path = require('node:path');

/** Returns one hash of several texts, in hexadecimal digits. */
function hashOf(...texts) {
  const hash = createHash('sha256');
  for (const text of texts) hash.update(`${text.length}:`).update(text);
  return hash.digest('hex');
}

/**
 * Returns the code of a key. Code that is absent or damaged is computed and stored.
 * @param directory - jest's cache directory.
 * @param key - hash of everything that the code depends on.
 * @param compute - returns the code.
 */
function readCached(directory, key, compute) {
  const file = path.join(directory, 'cloudless-code', key.slice(0, 2), key);
  const stored = read(file);
  if (stored !== undefined) return stored;
  const code = compute();
  mkdirSync(path.dirname(file), { recursive: true });
  // Another worker that writes the same key at this moment writes the same code.
  const incomplete = `${file}.${process.pid}`;
  writeFileSync(incomplete, `${hashOf(code)}\n${code}`);
  renameSync(incomplete, file);
  return code;
}

/** Returns the stored code; undefined when it is absent, or damaged by a crash of the machine. */
function read(file) {
  let text;
  try {
    text = readFileSync(file, 'utf8');
  } catch (reason) {
    if (reason.code === 'ENOENT') return undefined;
    throw reason;
  }
  const end = text.indexOf('\n');
  const code = text.slice(end + 1);
  return hashOf(code) === text.slice(0, end) ? code : undefined;
}

module.exports = { hashOf, readCached };
