import { readNodeReading } from './machine.js';

describe('the condition of a full disk', () => {
  const MIB = 2 ** 20;
  const capacity = {
    ...{ cpuMillis: 1_000, memoryBytes: MIB, storageBytes: 100 * MIB },
    cgroupLayout: 'v2' as const,
  };
  const inodes = { used: 980, total: 1_000 };

  it.each([
    { name: 'has no reason while the disk has space', reason: '' },
    { name: 'names the space', diskFull: true, reason: '96 of 100 MiB are in use' },
    { name: 'names the inodes', inodesFull: true, reason: '980 of 1000 inodes are in use' },
    {
      name: 'names both',
      diskFull: true,
      inodesFull: true,
      reason: '96 of 100 MiB are in use; 980 of 1000 inodes are in use',
    },
  ])('$name', async ({ diskFull = false, inodesFull = false, reason }) => {
    const reader = {
      readCapacity: async () => capacity,
      readUsage: async () => ({ memoryBytes: 0, storageBytes: 96 * MIB, inodes }),
      readConditions: async () => ({
        ...{ memoryPressure: false, diskPressure: false, diskFull, inodesFull },
      }),
    };
    expect((await readNodeReading(reader, capacity)).diskFull).toEqual({
      status: diskFull || inodesFull,
      reason,
    });
  });
});
