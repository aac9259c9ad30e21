// Calls a server of another workload and checks its SPIFFE ID. Needs only Node.js. Run it as a
// workload with `identity: {}`; URL is the address of the server, SERVER its SPIFFE ID.
import { readFileSync, readlinkSync } from 'node:fs';
import { get } from 'node:https';
import { join } from 'node:path';

const { CLOUDLESS_IDENTITY_DIR: directory, URL: url, SERVER: expectedServer } = process.env;
if (!directory || !url || !expectedServer)
  throw new Error('CLOUDLESS_IDENTITY_DIR, URL and SERVER must be set');

// The three files of one version belong together.
const version = readlinkSync(join(directory, '..data'));
const read = (name) => readFileSync(join(directory, version, name));

const request = get(
  url,
  {
    cert: read('tls.crt'),
    key: read('tls.key'),
    ca: read('ca.crt'), // trust the roots of the cluster, and no others
    minVersion: 'TLSv1.3',
    // Called after the chain was verified. Compares the SPIFFE ID instead of the host name.
    checkServerIdentity: (_host, { subjectaltname }) =>
      subjectaltname === `URI:${expectedServer}`
        ? undefined
        : new Error(`the server is ${subjectaltname}, not ${expectedServer}`),
  },
  (response) => {
    response.pipe(process.stdout);
    response.on('end', () => (process.exitCode = response.statusCode === 200 ? 0 : 1));
  },
);
request.on('error', (reason) => {
  console.error(reason.message);
  process.exitCode = 1;
});
