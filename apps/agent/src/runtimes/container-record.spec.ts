import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  getContainerRecordPath,
  readContainerRecord,
  saveContainerRecord,
  type ContainerRecord,
} from './container-record.js';

const RECORD: ContainerRecord = {
  socketPath: '/run/a.sock',
  owner: { cluster: 'cluster-1', node: 'node-1' },
};

describe('readContainerRecord', () => {
  let dataDir: string;
  beforeEach(() => {
    dataDir = mkdtempSync(join(tmpdir(), 'container-record-'));
  });
  afterEach(() => rmSync(dataDir, { recursive: true }));

  const write = (text: string): void => {
    saveContainerRecord(dataDir, RECORD);
    writeFileSync(getContainerRecordPath(dataDir), text);
  };

  it('returns the record with its capabilities, and none without a record', () => {
    expect(readContainerRecord(dataDir)).toBeUndefined();
    const record = { ...RECORD, capabilities: ['runtime.cri', 'exec.tty'] };
    saveContainerRecord(dataDir, record);
    expect(readContainerRecord(dataDir)).toEqual(record);
  });

  it.each([
    { name: 'of an earlier version, which has none', fields: {} },
    { name: 'whose capabilities are no list', fields: { capabilities: 'runtime.cri' } },
    { name: 'whose capabilities are no texts', fields: { capabilities: ['runtime.cri', 1] } },
  ])('returns a record $name without capabilities', ({ fields }) => {
    write(JSON.stringify({ ...RECORD, ...fields }));
    expect(readContainerRecord(dataDir)).toEqual(RECORD);
  });

  it.each(['{', 'null', '{"socketPath":"/run/a.sock"}'])(
    'rejects the damaged record %s',
    (text) => {
      write(text);
      expect(() => readContainerRecord(dataDir)).toThrow('is damaged');
    },
  );
});
