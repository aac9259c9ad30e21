// A server that answers only one workload. Needs only Node.js. Run it as a workload with
// `identity: {}`; CLIENT is the SPIFFE ID of the workload that may call.
import { readFileSync, readlinkSync } from 'node:fs';
import { createServer } from 'node:https';
import { join } from 'node:path';

const directory = process.env.CLOUDLESS_IDENTITY_DIR;
const allowedClient = process.env.CLIENT;
if (!directory || !allowedClient) throw new Error('CLOUDLESS_IDENTITY_DIR and CLIENT must be set');

/** The agent replaces all files at once, by replacing the link `..data`. */
const readVersion = () => readlinkSync(join(directory, '..data'));
function readIdentity(version) {
  const read = (name) => readFileSync(join(directory, version, name));
  return { cert: read('tls.crt'), key: read('tls.key'), ca: read('ca.crt') };
}

let version = readVersion();
const server = createServer(
  {
    ...readIdentity(version),
    minVersion: 'TLSv1.3',
    requestCert: true, // Node.js refuses clients without a certificate of the cluster
    rejectUnauthorized: true,
  },
  (request, response) => {
    // The cluster decides which URI is in a certificate. A certificate has exactly one name.
    const { subjectaltname } = request.socket.getPeerCertificate();
    const isAllowed = subjectaltname === `URI:${allowedClient}`;
    response.writeHead(isAllowed ? 200 : 403, { 'content-type': 'text/plain' });
    response.end(isAllowed ? 'hello\n' : `${subjectaltname} may not call this server\n`);
  },
);
server.listen(Number(process.env.PORT ?? 8443), () =>
  console.log(`listening on ${server.address().port}`),
);

// New connections use the new certificate; open connections go on.
setInterval(
  () => {
    try {
      const newest = readVersion();
      if (newest === version) return;
      server.setSecureContext({ ...readIdentity(newest), minVersion: 'TLSv1.3' });
      version = newest;
      console.log('certificate replaced');
    } catch (reason) {
      console.error(`certificate not replaced: ${reason.message}`);
    }
  },
  Number(process.env.CHECK_MS ?? 5_000),
);
process.on('SIGTERM', () => process.exit(0));
