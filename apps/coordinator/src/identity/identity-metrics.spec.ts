import { ManualClock } from '@cloudless/base/testing';
import { createMetrics } from '@cloudless/observability';
import { registerIdentityMetrics } from './identity-metrics.js';

const DAY_MS = 86_400_000;

describe('registerIdentityMetrics', () => {
  it('exposes the days until the certificates of authority and coordinator expire', async () => {
    const clock = new ManualClock();
    const metrics = createMetrics();
    const startMs = clock.wallTime();
    let authorityMs = startMs + 100 * DAY_MS;
    let notifyChange: () => void = () => undefined;
    registerIdentityMetrics(
      metrics,
      {
        identities: {
          getAuthorityExpiry: () => Promise.resolve(authorityMs),
          onChange: (listener: () => void) => {
            notifyChange = listener;
            return () => undefined;
          },
        },
        server: { notAfterMs: startMs + 30 * DAY_MS },
      },
      clock,
    );
    const read = async (): Promise<readonly string[]> =>
      (await metrics.expose())
        .split('\n')
        .filter((line) => line.startsWith('cloudless_certificate'));
    await clock.advance(DAY_MS);
    expect(await read()).toEqual([
      'cloudless_certificate_expiry_days{certificate="server"} 29',
      'cloudless_certificate_expiry_days{certificate="authority"} 99',
    ]);
    authorityMs = startMs + 1_001 * DAY_MS;
    notifyChange();
    await clock.advance(0);
    expect((await read()).at(-1)).toBe(
      'cloudless_certificate_expiry_days{certificate="authority"} 1000',
    );
  });
});
