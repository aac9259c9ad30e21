import { isMachineShuttingDown } from './machine-shutdown.js';

describe('isMachineShuttingDown', () => {
  it.each([
    { answer: 'stopping\n', expected: true },
    { answer: 'running\n', expected: false },
    { answer: 'degraded\n', expected: false },
    { answer: 'offline\n', expected: false },
    { answer: '', expected: false },
  ])('returns $expected for the answer "$answer" of systemd', async ({ answer, expected }) => {
    expect(await isMachineShuttingDown(() => Promise.resolve(answer))).toBe(expected);
  });

  it('returns false when systemd does not answer', async () => {
    expect(await isMachineShuttingDown(() => Promise.reject(new Error('no bus')))).toBe(false);
  });

  it('returns false on this machine, which is not shutting down', async () => {
    expect(await isMachineShuttingDown()).toBe(false);
  });
});
