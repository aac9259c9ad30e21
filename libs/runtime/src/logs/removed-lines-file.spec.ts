import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { readRemovedLines, recordRemovedFiles, type SurplusFile } from './removed-lines-file.js';

let directory: string;

beforeEach(() => {
  directory = mkdtempSync(path.join(tmpdir(), 'cloudless-removed-lines-'));
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

function aFile(firstSequence: bigint, bytes: number): SurplusFile {
  const file = path.join(directory, `${firstSequence}.log`);
  writeFileSync(file, 'x'.repeat(bytes));
  return { file, firstSequence };
}

describe('recordRemovedFiles', () => {
  it('adds the sizes of removed files to the record', () => {
    expect(readRemovedLines(directory)).toBeUndefined();
    recordRemovedFiles(directory, [aFile(1n, 100), aFile(11n, 50)], 21n);
    expect(readRemovedLines(directory)).toEqual({ keptFrom: 21n, bytes: 150 });
    recordRemovedFiles(directory, [aFile(21n, 7)], 31n);
    expect(readRemovedLines(directory)).toEqual({ keptFrom: 31n, bytes: 157 });
  });

  it('counts a file once when an interrupted rotation recorded but did not remove the file', () => {
    const file = aFile(1n, 100);
    recordRemovedFiles(directory, [file], 11n);
    recordRemovedFiles(directory, [file, aFile(11n, 50)], 21n);
    expect(readRemovedLines(directory)).toEqual({ keptFrom: 21n, bytes: 150 });
  });

  it('keeps the earlier record when the new record cannot be written', () => {
    recordRemovedFiles(directory, [aFile(1n, 100)], 11n);
    mkdirSync(path.join(directory, 'removed.new')); // as on a full disk
    recordRemovedFiles(directory, [aFile(11n, 50)], 21n);
    expect(readRemovedLines(directory)).toEqual({ keptFrom: 11n, bytes: 100 });
  });
});
