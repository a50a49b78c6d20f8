//! The operator's side of the HTTP interface: accounts with keys, the audit, metrics. Used by `hoga key`, `hoga audit` and the lab.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Why the running system could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// No running system in that data folder.
    #[error(
        "[system-not-running] no running system in {dir}: {reason}. Start it with `hoga up --data {dir}`, or name the folder with --data"
    )]
    NotRunning {
        /// The data folder.
        dir: String,
        /// What is missing.
        reason: String,
    },
    /// It cannot be reached, or the answer is no answer.
    #[error("[system-unreachable] {url}: {reason}")]
    Unreachable {
        /// What was asked.
        url: String,
        /// Why it failed.
        reason: String,
    },
    /// It refused.
    #[error("[request-refused] {url}: refused with {status}: {body}")]
    Refused {
        /// What was asked.
        url: String,
        /// HTTP status.
        status: u16,
        /// Its answer.
        body: String,
    },
}

/// Where a running system is and the token that proves its operator: `run.json` in its data folder, readable by its owner only.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct RunFile {
    /// `http://127.0.0.1:N`.
    pub url: String,
    /// Operator token of this run.
    pub admin_token: String,
    /// The process.
    pub pid: u32,
}

/// Its name in the data folder.
pub const RUN_FILE: &str = "run.json";

/// A paper account with a key.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Account {
    /// Its number.
    pub account: u32,
    /// API key.
    pub key: String,
    /// Secret for HMAC signatures.
    pub secret: String,
}

/// A connection to a running system's operator interface.
#[derive(Clone)]
pub struct Admin {
    agent: ureq::Agent,
    run: RunFile,
}

impl Admin {
    /// Finds the system that runs in `data`.
    pub fn of(data: &Path) -> Result<Admin, AdminError> {
        let not_running = |reason: String| AdminError::NotRunning { dir: data.display().to_string(), reason };
        let text = std::fs::read_to_string(data.join(RUN_FILE))
            .map_err(|e| not_running(format!("{RUN_FILE}: {e}")))?;
        let run = serde_json::from_str(&text).map_err(|e| not_running(format!("{RUN_FILE}: {e}")))?;
        Ok(Admin::new(run, Duration::from_secs(120)))
    }

    /// A system on any machine: its address, its operator's token, and how long an answer may take.
    pub fn at(url: &str, token: &str, timeout: Duration) -> Admin {
        let run = RunFile {
            url: url.trim_end_matches('/').to_owned(),
            admin_token: token.to_owned(),
            pid: 0, // not of this machine
        };
        Admin::new(run, timeout)
    }

    fn new(run: RunFile, timeout: Duration) -> Admin {
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(timeout))
            .build()
            .new_agent();
        Admin { agent, run }
    }

    /// Where it serves.
    pub fn url(&self) -> &str {
        &self.run.url
    }

    /// Makes a paper account with a key and deposits (asset, decimal amount).
    pub fn account(&self, deposits: &[(String, String)]) -> Result<Account, AdminError> {
        let deposits: serde_json::Map<String, Value> =
            deposits.iter().map(|(asset, amount)| (asset.clone(), json!(amount))).collect();
        let answer = self.post("/api/v1/admin/accounts", &json!({ "deposits": deposits }))?;
        serde_json::from_value(answer).map_err(|e| AdminError::Unreachable {
            url: format!("{}/api/v1/admin/accounts", self.run.url),
            reason: format!("an answer that does not fit: {e}"),
        })
    }

    /// The audit's report.
    pub fn audit(&self) -> Result<Value, AdminError> {
        self.get("/api/v1/admin/audit")
    }

    /// A GET with the operator's token.
    pub fn get(&self, path: &str) -> Result<Value, AdminError> {
        let url = format!("{}{path}", self.run.url);
        let request =
            self.agent.get(&url).header("authorization", format!("Bearer {}", self.run.admin_token));
        finish(&url, request.call())
    }

    /// A GET of a text with the operator's token.
    pub fn text(&self, path: &str) -> Result<String, AdminError> {
        let url = format!("{}{path}", self.run.url);
        let request =
            self.agent.get(&url).header("authorization", format!("Bearer {}", self.run.admin_token));
        text(&url, request.call())
    }

    /// A GET of bytes with the operator's token.
    pub fn bytes(&self, path: &str) -> Result<Vec<u8>, AdminError> {
        let url = format!("{}{path}", self.run.url);
        let request =
            self.agent.get(&url).header("authorization", format!("Bearer {}", self.run.admin_token));
        bytes(&url, request.call())
    }

    /// A GET of a path that is signed already, with the API key it is signed for.
    pub fn get_signed(&self, path: &str, key: &str) -> Result<Value, AdminError> {
        let url = format!("{}{path}", self.run.url);
        finish(&url, self.agent.get(&url).header("X-MBX-APIKEY", key).call())
    }

    /// The text at a path, as anybody sees it.
    pub fn page(&self, path: &str) -> Result<String, AdminError> {
        let url = format!("{}{path}", self.run.url);
        text(&url, self.agent.get(&url).call())
    }

    /// A POST of a form that is signed already, with the API key it is signed for.
    pub fn post_signed(&self, path: &str, form: &str, key: &str) -> Result<Value, AdminError> {
        let url = format!("{}{path}", self.run.url);
        let request = self.agent.post(&url).header("X-MBX-APIKEY", key);
        finish(&url, request.content_type("application/x-www-form-urlencoded").send(form))
    }

    /// A POST of JSON with the operator's token.
    pub fn post(&self, path: &str, body: &Value) -> Result<Value, AdminError> {
        let url = format!("{}{path}", self.run.url);
        let request = self
            .agent
            .post(&url)
            .header("authorization", format!("Bearer {}", self.run.admin_token))
            .content_type("application/json");
        finish(&url, request.send(body.to_string()))
    }
}

type Answer = Result<ureq::http::Response<ureq::Body>, ureq::Error>;

fn finish(url: &str, result: Answer) -> Result<Value, AdminError> {
    let body = text(url, result)?;
    serde_json::from_str(&body).map_err(|e| AdminError::Unreachable {
        url: url.to_owned(),
        reason: format!("an answer that is not JSON: {e}"),
    })
}

fn text(url: &str, result: Answer) -> Result<String, AdminError> {
    let body = bytes(url, result)?;
    String::from_utf8(body).map_err(|e| AdminError::Unreachable {
        url: url.to_owned(),
        reason: format!("an answer that is no text: {e}"),
    })
}

fn bytes(url: &str, result: Answer) -> Result<Vec<u8>, AdminError> {
    let unreachable = |reason: String| AdminError::Unreachable { url: url.to_owned(), reason };
    let mut response = result.map_err(|e| unreachable(e.to_string()))?;
    let status = response.status().as_u16();
    let body = response
        .body_mut()
        .with_config()
        .limit(256 * 1024 * 1024)
        .read_to_vec()
        .map_err(|e| unreachable(e.to_string()))?;
    if !(200..300).contains(&status) {
        let body = String::from_utf8_lossy(&body).into_owned();
        return Err(AdminError::Refused { url: url.to_owned(), status, body });
    }
    Ok(body)
}
