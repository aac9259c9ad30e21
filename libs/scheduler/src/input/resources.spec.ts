import { clampToZero, NO_RESOURCES } from './resources.js';

describe('clampToZero', () => {
  it('replaces negative amounts by 0 and keeps the others', () => {
    const negative = {
      cpuMillis: -1,
      memoryBytes: -2,
      storageBytes: -3,
      bandwidthBps: -4,
      gpus: -5,
      custom: { license: -6 },
    };
    expect(clampToZero(negative)).toEqual(NO_RESOURCES);
    const some = { ...NO_RESOURCES, cpuMillis: 250, custom: { license: 2 } };
    expect(clampToZero(some)).toEqual(some);
  });
});
