import { createRouterTransport } from '@connectrpc/connect';
import { RENEW_CERTIFICATE_HEADER, UserService, createUserClient } from '@cloudless/api';
import type { CallAccess } from '../access/call-access.js';
import { ANONYMOUS_CALLER } from '../access/caller.js';
import { guardService } from './service-guard.js';

describe('guardService', () => {
  it.each([
    { hasOldCertificate: true, header: 'true' },
    { hasOldCertificate: false, header: null },
  ])(
    'asks the caller to renew an old certificate: $hasOldCertificate',
    async ({ hasOldCertificate, header }) => {
      const access = {
        getCaller: () => ANONYMOUS_CALLER,
        requireCall: () => undefined,
        hasOldCertificate: () => hasOldCertificate,
        waitForRequestedRevision: () => undefined,
      } as unknown as CallAccess;
      const implementation = { whoAmI: () => ({ principal: 'user/ada' }) };
      const transport = createRouterTransport((router) => {
        router.service(UserService, guardService(access, UserService, implementation as never));
      });
      let received: string | null = null;
      await createUserClient(transport).whoAmI(
        {},
        { onHeader: (headers) => (received = headers.get(RENEW_CERTIFICATE_HEADER)) },
      );
      expect(received).toBe(header);
    },
  );
});
