import { describe, expect, it } from '@jest/globals';
import { unmapIpv4 } from './unmap-ipv4.js';

describe('unmapIpv4', () => {
  it.each(['::ffff:192.0.2.1', '::FFFF:192.0.2.1'])('returns the IPv4 address of %s', (address) => {
    expect(unmapIpv4(address)).toBe('192.0.2.1');
  });

  it.each(['192.0.2.1', '::1', '2001:db8::ffff:1', '::ffff:c000:201', '::ffff:', ''])(
    'returns "%s" as it is',
    (text) => {
      expect(unmapIpv4(text)).toBe(text);
    },
  );
});
