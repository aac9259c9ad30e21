import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { silentLog } from '@cloudless/base';
import { COPIES_FOLDER, COPIES_KEY, LocalCopies } from './local-copies.js';

/** A copy of "web-1" as an earlier agent with the key 7, 7, … has stored the value `golden`. */
const STORED =
  '{"format":1,"entries":[{"kind":1,"name":"db","uid":"u1","version":3,"signalPending":true,' +
  '"nonce":"wrLf4MwLrBUbs8Pa","tag":"LXiWp+PkCy/0VX1yRC6qEg==",' +
  '"data":"qrIFYAjmmHxdjExPvyBt3OFdi4ds+ZO6vg=="}]}';

describe('local copies', () => {
  let dataDir: string;
  beforeEach(async () => {
    dataDir = await mkdtemp(join(tmpdir(), 'local-copies-'));
    await mkdir(join(dataDir, COPIES_FOLDER));
    await writeFile(join(dataDir, COPIES_KEY), Buffer.alloc(32, 7), { mode: 0o600 });
  });
  afterEach(() => rm(dataDir, { recursive: true }));

  it('of earlier agents can be read', async () => {
    await writeFile(join(dataDir, COPIES_FOLDER, 'web-1'), STORED);
    expect(await new LocalCopies(dataDir, silentLog).read('web-1')).toMatchObject([
      {
        version: { kind: 1, name: 'db', uid: 'u1', version: 3 },
        data: new Map([['password', new Uint8Array(Buffer.from('golden'))]]),
        signalPending: true,
      },
    ]);
  });
});
