import { mkdtempSync, rmSync, truncateSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { PendingFile } from './pending-file.js';

let directory: string;
let file: PendingFile;

beforeEach(() => {
  directory = mkdtempSync(path.join(tmpdir(), 'cloudless-pending-'));
  file = new PendingFile(path.join(directory, 'stdout.pending'));
});
afterEach(() => {
  file.close();
  rmSync(directory, { recursive: true });
});

describe('PendingFile', () => {
  it('returns the bytes that were written last', () => {
    expect(file.read(0n)).toEqual(new Uint8Array(0));
    file.write(5n, Uint8Array.of(1, 2, 3));
    file.write(5n, Uint8Array.of(9));
    expect(file.read(5n)).toEqual(Uint8Array.of(9));
  });

  it('returns no bytes when a later line of the stream already contains them', () => {
    file.write(5n, Uint8Array.of(1));
    expect(file.read(6n)).toEqual(new Uint8Array(0));
  });

  it('returns no bytes when the file is incomplete', () => {
    file.write(5n, Uint8Array.of(1, 2, 3));
    truncateSync(path.join(directory, 'stdout.pending'), 14);
    expect(file.read(5n)).toEqual(new Uint8Array(0));
  });
});
