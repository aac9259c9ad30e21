import { createPrivateKey, createPublicKey } from 'node:crypto';
import { createKeyAndCsr, readCsr } from './index.js';

describe('createKeyAndCsr', () => {
  it('creates a P-256 key and a request that readCsr accepts', async () => {
    const { keyPem, csr, publicKeySha256 } = await createKeyAndCsr();
    const key = createPrivateKey(keyPem);
    expect(key.asymmetricKeyDetails).toEqual({ namedCurve: 'prime256v1' });
    const request = await readCsr(csr);
    expect(request.publicKeySha256).toBe(publicKeySha256);
    expect(Buffer.from(request.publicKey)).toEqual(
      createPublicKey(key).export({ format: 'der', type: 'spki' }),
    );
  });
});
