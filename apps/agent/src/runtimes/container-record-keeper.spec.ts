import { mkdirSync, mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { getContainerRecordPath, readContainerRecord } from './container-record.js';
import { ContainerRecordKeeper } from './container-record-keeper.js';

const SOCKET = '/run/a.sock';
const OWNER = { cluster: 'cluster-1', node: 'node-1' };
const CAPABILITIES = ['runtime.cri', 'exec.tty'];

describe('ContainerRecordKeeper', () => {
  let dataDir: string;
  let warnings: string[];
  let keeper: ContainerRecordKeeper;
  beforeEach(() => {
    dataDir = mkdtempSync(join(tmpdir(), 'container-record-'));
    warnings = [];
    keeper = open();
  });
  afterEach(() => rmSync(dataDir, { recursive: true }));

  const open = (): ContainerRecordKeeper =>
    new ContainerRecordKeeper({
      ...{ dataDir, node: OWNER.node },
      log: { warn: (message) => void warnings.push(message) },
    });
  const read = (): unknown => readContainerRecord(dataDir);
  /** Lets every later write of a changed record fail. */
  const failWrites = (): void =>
    void mkdirSync(`${getContainerRecordPath(dataDir)}.draft/x`, { recursive: true });

  it('records the container runtime in use, and then its capabilities', () => {
    expect(keeper.current).toBeUndefined();
    keeper.use(SOCKET, OWNER.cluster);
    expect(read()).toEqual({ socketPath: SOCKET, owner: OWNER });
    keeper.recordCapabilities(CAPABILITIES);
    expect(read()).toEqual({ socketPath: SOCKET, owner: OWNER, capabilities: CAPABILITIES });
    expect(keeper.current).toEqual(read());
  });

  it('keeps the capabilities when the same runtime is used again, also by a later agent', () => {
    keeper.use(SOCKET, OWNER.cluster);
    keeper.recordCapabilities(CAPABILITIES);
    keeper.use(SOCKET, OWNER.cluster);
    open().use(SOCKET, OWNER.cluster);
    expect(read()).toEqual({ socketPath: SOCKET, owner: OWNER, capabilities: CAPABILITIES });
  });

  it('drops the capabilities when a runtime at another socket is used', () => {
    keeper.use(SOCKET, OWNER.cluster);
    keeper.recordCapabilities(CAPABILITIES);
    keeper.use('/run/b.sock', OWNER.cluster);
    expect(read()).toEqual({ socketPath: '/run/b.sock', owner: OWNER });
  });

  it('forgets the capabilities, and removes the record', () => {
    keeper.use(SOCKET, OWNER.cluster);
    keeper.recordCapabilities(CAPABILITIES);
    keeper.forgetCapabilities();
    expect(read()).toEqual({ socketPath: SOCKET, owner: OWNER });
    keeper.remove();
    expect([read(), keeper.current]).toEqual([undefined, undefined]);
  });

  it('writes nothing when the content is the same', () => {
    keeper.use(SOCKET, OWNER.cluster);
    keeper.recordCapabilities(CAPABILITIES);
    const { ino } = statSync(getContainerRecordPath(dataDir));
    failWrites();
    keeper.use(SOCKET, OWNER.cluster);
    keeper.recordCapabilities(CAPABILITIES);
    expect(statSync(getContainerRecordPath(dataDir)).ino).toBe(ino);
    expect(warnings).toEqual([]);
  });

  it('only logs a failed write of capabilities, and throws when the first use cannot be recorded', () => {
    keeper.use(SOCKET, OWNER.cluster);
    failWrites();
    keeper.recordCapabilities(CAPABILITIES);
    keeper.use(SOCKET, OWNER.cluster); // nothing has changed
    expect(warnings).toEqual(['record of the container runtime not changed']);
    expect(read()).toEqual({ socketPath: SOCKET, owner: OWNER });
    expect(() => keeper.use('/run/b.sock', OWNER.cluster)).toThrow();
  });
});
