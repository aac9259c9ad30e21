import { clampToZero } from './resources.js';

describe('clampToZero', () => {
  it('replaces negative amounts by 0 and keeps the others', () => {
    const negative = {
      cpuMillis: -1,
      memoryBytes: -2,
      storageBytes: -3,
      bandwidthBps: -4,
      gpus: -5,
    };
    const zero = { cpuMillis: 0, memoryBytes: 0, storageBytes: 0, bandwidthBps: 0, gpus: 0 };
    expect(clampToZero(negative)).toEqual(zero);
    expect(clampToZero({ ...zero, cpuMillis: 250 })).toEqual({ ...zero, cpuMillis: 250 });
  });
});
